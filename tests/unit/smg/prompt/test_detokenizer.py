"""Detokenizer: ids may come in any pieces; the text must not depend on how, and never ends inside a character."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.prompt.builder import PromptBuilder
from smg.prompt.detokenizer import Detokenizer
from smg.prompt.packed import unpack_ids
from smg.prompt.tokenizer import Tokenizer
from smg.prompt.vocabulary import Vocabulary, byte_alphabet, decoding_of

if TYPE_CHECKING:
    from pathlib import Path

BYTES = {byte: char for char, byte in byte_alphabet().items()}
# Ids 0-255 are the bytes; then whole words, and one special token.
WORDS = ["Hello", " w\u00f6rld", "\u65e5\u672c", "\U0001f600", '"\\\n\x01']


def byte_level() -> Tokenizer:
    spelled = ["".join(BYTES[byte] for byte in word.encode()) for word in WORDS]
    tokens = [BYTES[byte] for byte in range(256)] + [*spelled, "<|end|>", None]
    vocabulary = Vocabulary(tokens, frozenset({256 + len(WORDS)}), decoding_of({"type": "ByteLevel"}))
    return Tokenizer(vocabulary, encode=str.encode, eos_ids=frozenset())


TOKENIZER = byte_level()
SPECIAL = 256 + len(WORDS)
ids = st.lists(st.integers(0, TOKENIZER.vocab_size + 3), max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=10)


def pieces(values: list[int], at: list[int]) -> list[list[int]]:
    bounds = [0, *sorted(min(cut, len(values)) for cut in at), len(values)]
    return [values[start:end] for start, end in pairwise(bounds)]


@given(ids, cuts, st.booleans())
def test_any_cut_gives_the_text_of_the_whole(values: list[int], at: list[int], skip: bool) -> None:
    table = TOKENIZER.vocabulary.bytes_without_specials if skip else TOKENIZER.vocabulary.bytes_with_specials
    whole = b"".join(table[i] for i in values if i < len(table)).decode("utf-8", "replace")
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=skip)
    assert "".join([detokenizer.feed(piece) for piece in pieces(values, at)]) + detokenizer.finish() == whole
    assert TOKENIZER.decode(values, skip_special_tokens=skip) == whole


@given(st.text(max_size=20), cuts)
def test_valid_text_never_shows_half_a_character(text: str, at: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    released = [detokenizer.feed(piece) for piece in pieces(list(text.encode()), at)]
    assert "".join(released) == text
    assert "\ufffd" not in "".join(released) or "\ufffd" in text
    assert detokenizer.finish() == ""


@given(ids)
def test_fragments_may_stand_in_for_feed_wherever_the_state_is_clean(values: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    through_table: list[str] = []
    for token in values:
        fragment = TOKENIZER.fragments[token] if token < TOKENIZER.vocab_size else None
        if detokenizer.is_clean and fragment is not None:
            through_table.append(orjson.loads(b'"' + fragment + b'"'))
        else:
            through_table.append(detokenizer.feed([token]))
    assert "".join(through_table) + detokenizer.finish() == TOKENIZER.decode(values)


def test_is_clean_tells_whether_bytes_are_held_back() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert detokenizer.is_clean
    assert detokenizer.feed([0xF0, 0x9F]) == ""
    assert not detokenizer.is_clean
    assert detokenizer.feed([0x98, 0x80]) == "\U0001f600"
    assert detokenizer.is_clean


def test_what_never_becomes_a_character_is_one_replacement_character() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert detokenizer.feed([0xE6, 0x97]) == ""
    assert detokenizer.feed([ord("a")]) == "\ufffda"
    assert detokenizer.feed([0xE6]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_fragments_are_json_without_quotes_and_none_for_half_characters() -> None:
    assert TOKENIZER.fragments[ord("a")] == b"a"
    assert TOKENIZER.fragments[256 + 4] == b'\\"\\\\\\n\\u0001'
    assert TOKENIZER.fragments[0xE6] is None
    assert TOKENIZER.fragments[SPECIAL] == b""
    assert TOKENIZER.fragments_with_specials[SPECIAL] == b"<|end|>"
    assert TOKENIZER.fragments[SPECIAL + 1] == b""  # an id without a token


def test_token_bytes_and_text_are_for_any_id() -> None:
    assert TOKENIZER.token_bytes(258) == WORDS[2].encode()
    assert TOKENIZER.token_text(0xE6) == "\ufffd"
    assert TOKENIZER.token_text(SPECIAL) == "<|end|>"
    assert (TOKENIZER.token_bytes(-1), TOKENIZER.token_bytes(10**6)) == (b"", b"")


@pytest.mark.parametrize(
    ("decoder", "tokens", "expected"),
    [
        # Llama 2: one leading space of the whole is dropped; bytes join across tokens.
        ("strip", ["▁▁Hi", "▁there", "<0xE6>", "<0x97>", "<0xA5>"], " Hi there\u65e5"),
        ("keep", ["▁Hi", "<0x0A>", "▁x"], " Hi\n x"),
        # T5: the first token loses its marks.
        ("metaspace", ["▁▁Hi", "▁there"], "Hi there"),
        ("metaspace", ["▁", "▁there"], " there"),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 9])
def test_sentencepiece_spellings(decoder: str, tokens: list[str], expected: str, step: int) -> None:
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = {
        "strip": {"type": "Sequence", "decoders": [*steps, strip]},
        "keep": {"type": "Sequence", "decoders": steps},
        "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    }
    decoding = decoding_of(decoders[decoder])
    assert decoding is not None
    tokenizer = Tokenizer(
        Vocabulary([*tokens], frozenset(), decoding), encode=str.encode, eos_ids=frozenset()
    )
    detokenizer = Detokenizer(tokenizer)
    every = list(range(len(tokens)))
    text = (
        "".join([detokenizer.feed(every[n : n + step]) for n in range(0, len(every), step)])
        + detokenizer.finish()
    )
    assert text == expected
    assert tokenizer.decode(every) == expected


def test_a_family_that_drops_the_leading_space_is_clean_only_after_it() -> None:
    decoding = decoding_of(
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    )
    assert decoding is not None
    tokenizer = Tokenizer(
        Vocabulary(["▁a", "▁b"], frozenset(), decoding), encode=str.encode, eos_ids=frozenset()
    )
    detokenizer = Detokenizer(tokenizer)
    assert not detokenizer.is_clean
    assert detokenizer.feed([0]) == "a"
    assert detokenizer.is_clean
    assert tokenizer.fragments[1] == b" b"


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}]},
    ],
)
def test_other_decoders_have_no_table(decoder: dict[str, object] | None) -> None:
    assert decoding_of(decoder) is None


def test_a_trained_tokenizer_decodes_what_it_encodes(tokenizer_dir: Path) -> None:
    tokenizer = PromptBuilder.load(tokenizer_dir).tokenizer
    text = "H\u00e9llo \u65e5\u672c\u8a9e \U0001f600\U0001f1eb\U0001f1f7 <|im_end|>\n\t'quoted'"
    values = unpack_ids(tokenizer.encode(text))
    detokenizer = Detokenizer(tokenizer)
    assert "".join([detokenizer.feed([token]) for token in values]) + detokenizer.finish() == text
    assert not tokenizer.special_ids & set(values)
