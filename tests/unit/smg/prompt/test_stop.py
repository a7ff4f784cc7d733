"""StopMatcher: the text may be cut anywhere; what is released and what is matched must not depend on where."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.prompt.stop import StopMatcher

texts = st.text("abc", max_size=40)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def whole(stops: list[str], text: str, *, keep: bool) -> tuple[str, str | None]:
    """What a matcher must come to, said over the whole text."""
    ends = sorted((text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text)
    if not ends:
        return text, None
    end, _, stop = ends[0]
    return (text[:end] if keep else text[: end - len(stop)]), stop


def run(stops: list[str], pieces: list[str], *, keep: bool) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, keep=keep)
    released = "".join([matcher.feed(piece) for piece in pieces]) + matcher.finish()
    return released, matcher.matched


@given(texts, stop_lists, st.booleans(), st.lists(st.integers(0, 40), max_size=8))
def test_cuts_do_not_change_the_result(text: str, stops: list[str], keep: bool, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(bounds)]
    assert run(stops, pieces, keep=keep) == whole(stops, text, keep=keep)


@given(texts, stop_lists)
def test_no_more_is_held_back_than_could_become_a_match(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    released = matcher.feed(text)
    if matcher.matched is None:
        held = text[len(released) :]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


@pytest.mark.parametrize(
    ("stops", "pieces", "released", "matched"),
    [
        (["END"], ["say E", "N", "D more"], "say ", "END"),
        (["END"], ["say E", "N", "X"], "say ENX", None),
        (["abcd", "bc"], ["abcd"], "a", "bc"),  # complete first
        (["bc", "abc"], ["xabc"], "x", "abc"),  # complete together: the longer
        (["\n\n"], ["a\n", "\nb"], "a", "\n\n"),
        ([], ["anything"], "anything", None),
    ],
)
def test_what_wins(stops: list[str], pieces: list[str], released: str, matched: str | None) -> None:
    assert run(stops, pieces, keep=False) == (released, matched)


def test_keep_releases_the_stop_string_and_nothing_after_it() -> None:
    assert run(["END"], ["a E", "ND b", "c"], keep=True) == ("a END", "END")


def test_after_a_match_nothing_comes_any_more() -> None:
    matcher = StopMatcher(["x"])
    assert [matcher.feed("ax"), matcher.feed("b"), matcher.finish()] == ["a", "", ""]


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
