"""SegmentCache stays within its bound and keeps what is used; PromptEncoder sends each segment where it belongs."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import ContextTooLong
from smg.prompt import segments
from smg.prompt.control import ControlCuts, ControlToken
from smg.prompt.packed import pack_ids, unpack_ids
from smg.prompt.parts import SafeCuts
from smg.prompt.segments import PromptEncoder, SegmentCache


class CodePoints:
    """An encoder whose ids are the characters' codes plus an offset, and which remembers what it was given."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.seen: list[str] = []

    def encode(self, text: str) -> bytes:
        self.seen.append(text)
        return pack_ids([ord(char) + self.offset for char in text])


def control(token: int, text: str, *, left: bool = False, right: bool = False) -> ControlToken:
    return ControlToken(token, text, True, left, right, False, False)


def encoder(**options: object) -> PromptEncoder:
    cuts = ControlCuts(
        [control(1, "<s>"), control(2, "<s>>"), control(3, "<end>", right=True), control(4, "<l>", left=True)]
    )
    options.setdefault("plain", CodePoints())
    options.setdefault("cache", SegmentCache(1 << 20))
    return PromptEncoder(cuts, **options)


def codes(text: str, offset: int = 0) -> list[int]:
    return [ord(char) + offset for char in text]


@pytest.mark.parametrize(
    ("rendered", "expected"),
    [
        ("", []),
        ("ab", codes("ab")),
        ("<s>ab<s>", [1, *codes("ab"), 1]),
        ("<s>>", [2]),  # the longest token at a place
        ("a<end> \n\u3000b", [*codes("a"), 3, *codes("b")]),
        ("a \n<l> b", [*codes("a"), 4, *codes(" b")]),
        ("<end>\x1cb", [3, *codes("\x1cb")]),  # white space to Python, not to the reference
    ],
)
def test_control_tokens_cut_the_prompt(rendered: str, expected: list[int]) -> None:
    assert unpack_ids(encoder().encode_rendered(rendered)) == expected


def test_the_mark_keeps_content_from_being_cut_and_is_taken_out() -> None:
    assert unpack_ids(encoder().encode_rendered("<s><\ue000s>x\ue000", "\ue000")) == [1, *codes("<s>x")]


def test_a_segment_that_spells_a_control_token_is_kept_from_the_fast_encoder() -> None:
    plain, fast = CodePoints(), CodePoints()
    prompts = encoder(plain=plain, fast=fast)
    prompts.encode_rendered("<s>safe<s>x<\ue000s>", "\ue000")
    prompts.encode_text("<end>")
    assert fast.seen == ["safe"]
    assert plain.seen == ["x<s>", "<end>"]


def test_the_start_of_a_prompt_may_be_encoded_apart() -> None:
    prompts = encoder(start=CodePoints(offset=1000))
    assert unpack_ids(prompts.encode_rendered("a<s>a")) == [*codes("a", 1000), 1, *codes("a")]
    assert unpack_ids(prompts.encode_text("a")) == codes("a", 1000)


def test_a_prompt_that_must_not_be_cut_is_cut_only_to_keep_content_apart() -> None:
    prompts = encoder(whole=CodePoints(offset=1000))
    assert unpack_ids(prompts.encode_rendered("<s>a")) == codes("<s>a", 1000)
    assert unpack_ids(prompts.encode_rendered("<s>\ue000a", "\ue000")) == [1, *codes("a")]


def test_a_segment_is_encoded_once() -> None:
    plain = CodePoints()
    prompts = encoder(plain=plain)
    for _ in range(3):
        prompts.encode_rendered("<s>hello<s>world")
    assert plain.seen == ["hello", "world"]


def test_the_cache_forgets_what_is_not_used_and_keeps_what_is() -> None:
    cache = SegmentCache(20_000)
    cache.put("kept", b"1234")
    for n in range(1000):
        cache.put(f"other {n}", b"1234")
        assert cache.get("kept") == b"1234"
        assert cache.size_bytes <= 10_000
    assert cache.get("other 0") is None
    assert cache.get("other 999") == b"1234"


def test_an_entry_too_large_for_the_cache_is_not_kept() -> None:
    cache = SegmentCache(10_000)
    cache.put("x" * 2000, b"")
    assert cache.get("x" * 2000) is None
    assert SegmentCache(0).get("x") is None


def test_many_threads_may_share_a_cache() -> None:
    cache = SegmentCache(5_000)
    wrong: list[str] = []

    def work(seed: int) -> None:
        for n in range(2000):
            text = str((seed * 7 + n) % 50)
            ids = cache.get(text)
            if ids is None:
                cache.put(text, text.encode())
            elif ids != text.encode():
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.size_bytes <= 2_500


def test_encoding_stops_at_the_first_id_too_many() -> None:
    plain = CodePoints()
    prompts = encoder(plain=plain)
    assert len(prompts.encode_rendered("<s>ab<s>cd", max_tokens=6)) == 24
    with pytest.raises(ContextTooLong, match=r"context length is 5 tokens.*more than 5 input tokens"):
        prompts.encode_rendered("<s>ab<s>cd<s>never", max_tokens=5)
    assert "never" not in plain.seen
    with pytest.raises(ContextTooLong, match="context length is 5 tokens"):
        prompts.encode_text("abcd", max_tokens=5, reserved=2)


def test_a_long_segment_reaches_the_encoder_in_parts() -> None:
    plain = CodePoints()
    prompts = encoder(plain=plain, parts=SafeCuts((), part_chars=10))
    text = "some words, " * (segments.SHORT_CHARS // 12) + "<s>" * 20
    assert unpack_ids(prompts.encode_text(text)) == codes(text)
    assert max(map(len, plain.seen)) < 20
    with pytest.raises(ContextTooLong):
        prompts.encode_text(f"{text}!", max_tokens=5)


def test_one_prompt_fills_no_more_than_its_share_of_the_cache() -> None:
    cache = SegmentCache(1 << 20)
    prompts = encoder(cache=cache)
    prompts.encode_rendered("<s>".join(f"segment {n}" for n in range(2000)))
    assert cache.get("segment 0") is not None
    assert cache.get("segment 1999") is None


@given(
    pieces=st.lists(
        st.sampled_from(["<s>", "<s>>", "<end>", "a", " b\n", "<", "s>", "\ue000<s\ue000>", "long " * 40])
    ),
    mark=st.sampled_from(["", "\ue000"]),
    bound=st.none() | st.integers(0, 60),
)
def test_short_prompts_are_encoded_at_once_and_no_different(
    pieces: list[str], mark: str, bound: int | None
) -> None:
    cuts = ControlCuts([control(1, "<s>"), control(2, "<s>>"), control(3, "<end>")])

    def encoded(rendered: str) -> list[int] | None:
        plain, fast = CodePoints(), CodePoints(offset=0)
        prompts = PromptEncoder(cuts, plain=plain, fast=fast, cache=SegmentCache(1 << 20))
        try:
            ids = unpack_ids(prompts.encode_rendered(rendered, mark, max_tokens=bound))
        except ContextTooLong:
            return None
        # From the cache it is the same.
        assert unpack_ids(prompts.encode_rendered(rendered, mark)) == ids
        return ids

    rendered = "".join(pieces)
    at_once = encoded(rendered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SHORT_CHARS", -1)
        assert encoded(rendered) == at_once
