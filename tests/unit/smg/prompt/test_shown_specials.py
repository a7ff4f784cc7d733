"""Special tokens that a parser looks for are text, though special tokens are skipped; all others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HfTokenizer

from smg.prompt.detokenizer import Detokenizer
from smg.prompt.tokenizer import Tokenizer
from smg.prompt.vocabulary import vocabulary_from_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = ["a", "b", "[x]"]
SPECIALS = ["<|call|>", "[ARGS]", "<|end|>"]
MARKUP = ("<|call|>thought\n", "[ARGS]", "[CALL_ID]")
A, B, X, CALL, ARGS, END = range(6)


def made(*, is_slow: bool) -> Tokenizer:
    reference = HfTokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="a"))
    reference.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    reference.decoder = decoders.Fuse() if is_slow else decoders.ByteLevel()
    vocabulary, _ = vocabulary_from_reference(reference)
    return Tokenizer(
        vocabulary, encode=str.encode, eos_ids=frozenset((END,)), reference=reference if is_slow else None
    )


def decoded(tokenizer: Tokenizer, ids: Sequence[int], *, skips: bool = True, step: int = 1) -> str:
    shown = tokenizer.specials_in(MARKUP)
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skips, shown=shown)
    parts = [detokenizer.feed(ids[at : at + step]) for at in range(0, len(ids), step)]
    return "".join(parts) + detokenizer.finish()


@pytest.fixture(params=[False, True], ids=["table", "reference"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return made(is_slow=request.param)


def test_specials_that_stand_in_a_text_are_found(tokenizer: Tokenizer) -> None:
    assert tokenizer.specials_in(MARKUP) == {CALL, ARGS}
    assert tokenizer.specials_in(("<think>", "</think>")) == frozenset()
    assert tokenizer.specials_in(()) == frozenset()


@pytest.mark.parametrize("step", [1, 2, 10], ids=str)
def test_they_are_text_where_specials_are_skipped(tokenizer: Tokenizer, step: int) -> None:
    assert decoded(tokenizer, [CALL, A, ARGS, B, END, X], step=step) == "<|call|>a[ARGS]b[x]"


def test_all_are_text_where_none_is_skipped(tokenizer: Tokenizer) -> None:
    assert decoded(tokenizer, [CALL, A, END], skips=False) == "<|call|>a<|end|>"


def test_without_markup_all_are_skipped(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed([CALL, A, END]) + detokenizer.finish() == "a"


def test_fragments_agree_with_the_text() -> None:
    tokenizer = made(is_slow=False)
    shown = tokenizer.specials_in(MARKUP)
    none: frozenset[str] = frozenset()
    assert tokenizer.fragments_without(none, skip_special_tokens=True)[CALL:] == [b"", b"", b""]
    every = tokenizer.fragments_without(none, skip_special_tokens=True, shown=shown)
    assert every == [b"a", b"b", b"[x]", b"<|call|>", b"[ARGS]", b""]
    some = tokenizer.fragments_without(frozenset("["), skip_special_tokens=True, shown=shown)
    assert some == [b"a", b"b", None, b"<|call|>", None, b""]


def test_a_slow_family_has_no_fragments() -> None:
    tokenizer = made(is_slow=True)
    shown = tokenizer.specials_in(MARKUP)
    assert set(tokenizer.fragments_without(frozenset("["), skip_special_tokens=True, shown=shown)) == {None}


def test_tables_are_made_once() -> None:
    tokenizer = made(is_slow=False)
    shown = tokenizer.specials_in(MARKUP)
    assert tokenizer.vocabulary.bytes_showing(shown) is tokenizer.vocabulary.bytes_showing(frozenset(shown))
    assert tokenizer.vocabulary.bytes_showing(frozenset()) is tokenizer.vocabulary.bytes_without_specials
    again = {"skip_special_tokens": True, "shown": shown}
    assert tokenizer.fragments_without(frozenset("["), **again) is tokenizer.fragments_without(
        frozenset("["), **again
    )
