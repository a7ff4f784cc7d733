"""Markers: a text is released exactly up to where a marker may still begin."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.markers import Markers

MARKERS = ("<think>", "</think>", "<tool_call>")


def test_the_first_marker_is_found() -> None:
    found = Markers(MARKERS).find("a <tool_call> <think>")
    assert found is not None
    assert (found.group(), found.start()) == ("<tool_call>", 2)


def test_markers_before_the_start_are_not_found() -> None:
    assert Markers(MARKERS).find("<think>a", 1) is None


@given(st.text("<>/thinkoл", max_size=20), st.integers(0, 20))
def test_what_is_held_back_may_become_a_marker_and_is_the_longest_that_may(text: str, start: int) -> None:
    markers = Markers(MARKERS)
    start = min(start, len(text))
    end = markers.safe_end(text, start)
    could = [
        at
        for at in range(start, len(text))
        if any(m != text[at:] and m.startswith(text[at:]) for m in MARKERS)
    ]
    assert end == (could[0] if could else len(text))


def test_without_markers_nothing_is_found_or_held() -> None:
    none = Markers(())
    assert none.find("<think>") is None
    assert none.safe_end("<thin") == 5
    assert not none.may_begin_in("<think>")
    assert none.openers == frozenset()


def test_openers_are_found_wherever_they_stand() -> None:
    markers = Markers(("[TOOL_CALLS]", "^x", "-y"))
    assert markers.openers == {"[", "^", "-"}
    assert [text for text in ("a[", "a^b", "-", "T", "]", "b") if markers.may_begin_in(text)] == [
        "a[",
        "a^b",
        "-",
    ]


def test_a_marker_may_stand_at_the_end_of_another() -> None:
    markers = Markers(("[CALLS]", "]"))
    found = markers.find("a [CALLS] ]")
    assert found is not None
    assert (found.group(), found.start()) == ("[CALLS]", 2)
    assert markers.find("a [CALL") is None
    assert markers.safe_end("a [CALL") == 2


@pytest.mark.parametrize(
    ("markers", "fault"),
    [
        (("<a>", ""), "a marker is empty"),
        (("<a>", "<a>b"), "marker '<a>' stands inside marker '<a>b'"),
        (("x<a>y", "<a>"), "marker '<a>' stands inside marker 'x<a>y'"),
    ],
    ids=["empty", "prefix", "inside"],
)
def test_markers_that_cannot_be_told_apart_are_refused(markers: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        Markers(markers)
