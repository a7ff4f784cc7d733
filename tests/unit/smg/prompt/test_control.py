"""Which added tokens are control tokens, and which are content that a text may spell."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, models

from smg.prompt.control import ControlCuts, added_tokens_of


def sorted_out(added: list[AddedToken], template_text: str = "") -> tuple[list[str], list[str]]:
    tokenizer = Tokenizer(models.BPE())
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    found = added_tokens_of(tokenizer, template_text)
    return [token.text for token in found.controls], list(found.content)


@pytest.mark.parametrize(
    "text",
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "[INST]",
        "[/INST]",
        "<unused42>",
        "<|fim|>",
        "<\uff5cUser\uff5c>",
    ],
)
def test_markup_steers_the_model_though_it_is_not_special(text: str) -> None:
    assert sorted_out([AddedToken(text)]) == ([text], [])


@pytest.mark.parametrize("text", ["    ", "\n\n", "<table>", "</h1>", "word", "[ ]", "<a b>"])
def test_white_space_html_and_words_are_content(text: str) -> None:
    assert sorted_out([AddedToken(text)]) == ([], [text])


def test_special_tokens_and_what_the_template_writes_are_control_tokens_whatever_they_look_like() -> None:
    assert sorted_out([AddedToken("EOS", special=True), AddedToken("Turn:")], "Turn: x") == (
        ["EOS", "Turn:"],
        [],
    )


def test_white_space_that_the_template_writes_is_content() -> None:
    assert sorted_out([AddedToken("\n\n")], "a\n\nb") == ([], ["\n\n"])


def test_without_control_tokens_nothing_is_cut() -> None:
    cuts = ControlCuts([])
    assert list(cuts.cut("<s>a")) == ["<s>a"]
    assert not cuts.spells("<s>a")
