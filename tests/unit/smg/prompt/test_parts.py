"""SafeCuts: the ids of the parts are the ids of the whole, for every kind of pre-tokenizer that is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from smg.prompt import split_kinds
from smg.prompt.builder import PromptBuilder
from smg.prompt.parts import SafeCuts
from tests.examples import examples

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.lists(
    st.sampled_from(
        ["<|im_end|>", "it's", " a", "1", ", ", "\n", " ", "é", "_x", "<b>", "\u0301", "Z", "'ll", "世"]
    ),
    max_size=30,
).map("".join)


@pytest.fixture(scope="module")
def builder(tokenizer_dir: Path) -> PromptBuilder:
    return PromptBuilder.load(tokenizer_dir, backend="reference")


@given(TEXTS)
@examples(50)
def test_parts_make_the_text_again(text: str) -> None:
    parts = list(SafeCuts(["<b>"], part_chars=3).parts(text))
    assert "".join(parts) == text
    assert sum(part.count("<b>") for part in parts) == text.count("<b>")


@given(TEXTS)
@examples(50)
def test_parts_encode_as_the_whole(builder: PromptBuilder, text: str) -> None:
    parts = SafeCuts([], part_chars=3).parts(text)
    assert b"".join(map(builder.tokenizer.encode, parts)) == builder.tokenizer.encode(text)


def words(regexes: tuple[str, ...], text: str) -> list[str]:
    splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]
    steps = splits or [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    return [word for word, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize(
    "regexes",
    [
        (),
        (split_kinds._LLAMA3,),
        (split_kinds._QWEN2,),
        (split_kinds._QWEN35,),
        (split_kinds._O200K,),
        split_kinds._DEEPSEEK3,
    ],
    ids=["gpt2", "llama3", "qwen2", "qwen3.5", "o200k", "deepseek3"],
)
@given(text=TEXTS)
@examples(38)
def test_no_kind_of_pre_tokenizer_has_a_word_across_a_cut(regexes: tuple[str, ...], text: str) -> None:
    parts = SafeCuts([], part_chars=2).parts(text)
    assert [word for part in parts for word in words(regexes, part)] == words(regexes, text)
