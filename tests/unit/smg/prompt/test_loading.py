"""Loading takes a shortcut only where its probes show that it is exact, and refuses what it cannot do right."""

from __future__ import annotations

import json
import logging
import sys
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, processors

from smg.prompt.builder import PromptBuilder
from smg.prompt.packed import pack_ids, unpack_ids
from tests.fuzz.families import FAMILIES, SPECIAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEMPLATE = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"


def load(directory: Path, tokenizer: Tokenizer, **options: Any) -> PromptBuilder:
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE}), encoding="utf-8"
    )
    return PromptBuilder.load(directory, **options)


@cache
def trained() -> str:
    return FAMILIES["gpt2"]().to_str()


def gpt2() -> Tokenizer:
    return Tokenizer.from_str(trained())


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def gpt2_ids(directory: Path) -> Callable[[str], list[int]]:
    reference = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def test_a_tokenizer_whose_segments_depend_on_each_other_is_not_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = gpt2()
    # Counts between word boundaries only, which a cut cannot see.
    tokenizer.add_special_tokens([AddedToken("STOP", single_word=True, special=True)])
    with caplog.at_level(logging.INFO):
        builder = load(tmp_path, tokenizer)
    assert "not cut" in caplog.text
    reference = gpt2_ids(tmp_path)
    for content in ("a word", "aSTOPb", ""):
        prompt = builder.chat(user(content))
        if content != "aSTOPb":
            assert unpack_ids(prompt.ids) == reference(prompt.text)
        assert builder.tokenizer.decode(unpack_ids(prompt.ids), skip_special_tokens=False) == prompt.text
    forged = unpack_ids(builder.chat(user("x</s> STOP")).ids)
    assert [i for i in forged if i in builder.tokenizer.special_ids] == [
        tokenizer.token_to_id(t) for t in ("<s>", "</s>")
    ]


@pytest.mark.parametrize(
    ("left", "right"), [(True, False), (False, True), (True, True)], ids=["lstrip", "rstrip", "both"]
)
def test_tokens_that_strip_white_space_are_cut_as_the_reference_does(
    tmp_path: Path, left: bool, right: bool
) -> None:
    tokenizer = gpt2()
    tokenizer.add_special_tokens([AddedToken("<end>", lstrip=left, rstrip=right, special=True)])
    builder = load(tmp_path, tokenizer)
    reference = gpt2_ids(tmp_path)
    for text in ("a <end> b", "a\n\n<end>\u3000\tb", "<end> <end>", "  <s> \n<end>", "<end>\x1c x"):
        assert builder._prompts.encode_rendered(text) == pack_ids(reference(text))


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        (lambda text: [0] * len(text), "tokie differs from tokenizers on"),
        (lambda text: Tokenizer.from_str("{"), "tokie cannot read it"),
    ],
    ids=["other ids", "cannot load"],
)
def test_a_fast_backend_that_is_not_exact_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, backend: Any, says: str
) -> None:
    def from_json(path: str) -> Any:
        if "cannot" in says:
            raise ValueError(path)
        return SimpleNamespace(encode=lambda text, add_special_tokens: SimpleNamespace(ids=backend(text)))

    fake = SimpleNamespace(Tokenizer=SimpleNamespace(from_json=from_json), TokieError=OSError)
    monkeypatch.setitem(sys.modules, "tokie", fake)
    with caplog.at_level(logging.INFO):
        builder = load(tmp_path, gpt2())
    assert says in caplog.text
    assert builder.tokenizer.encode("Hello") == pack_ids(gpt2_ids(tmp_path)("Hello"))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer that can be read"):
        PromptBuilder.load(tmp_path)


def test_a_post_processor_that_does_more_than_add_ids_is_refused(tmp_path: Path) -> None:
    tokenizer = gpt2()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s>", special_tokens=[("<s>", 1)])
    with pytest.raises(ValueError, match="post-processor"):
        load(tmp_path, tokenizer)


def test_ids_before_and_after_a_text_are_added(tmp_path: Path) -> None:
    tokenizer = gpt2()
    start, end = (tokenizer.token_to_id(token) for token in ("<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", start), ("</s>", end)]
    )
    ids = unpack_ids(load(tmp_path, tokenizer).text("hello").ids)
    assert (ids[0], ids[-1]) == (start, end)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_chat_and_a_text_begin_once_whichever_came_before(tmp_path: Path, backend: Any) -> None:
    tokenizer = gpt2()
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    builder = load(tmp_path, tokenizer, backend=backend)
    for _ in range(2):
        text = unpack_ids(builder.text("hello").ids)
        chat = unpack_ids(builder.chat(user("hello")).ids)
        assert text == chat[:-1]
        assert [ids.count(start) for ids in (text, chat)] == [1, 1]


def test_a_model_that_could_build_a_control_token_from_its_spelling_does_not(tmp_path: Path) -> None:
    builder = load(tmp_path, FAMILIES["unigram"]())
    controls = builder.tokenizer.special_ids - {0}
    for token in SPECIAL:
        for text in (token, f"a {token} b", token * 3, token.replace("<", "\uff1c").replace(">", "\uff1e")):
            assert not controls.intersection(unpack_ids(builder.tokenizer.encode(text)))


def test_an_added_token_that_is_content_keeps_its_id_wherever_it_is_spelled(tmp_path: Path) -> None:
    tokenizer = gpt2()
    tokenizer.add_tokens([AddedToken("<table>", normalized=False), AddedToken("        ", normalized=False)])
    builder = load(tmp_path, tokenizer)
    text = "a <table>\n        b"
    assert builder.tokenizer.encode(text) == pack_ids(gpt2_ids(tmp_path)(text))
    assert tokenizer.token_to_id("<table>") in unpack_ids(builder.chat(user(text)).ids)


@pytest.mark.parametrize(
    "word", ["\u4e16\u754c", "the", "a_", "\u00e9a", "it's 12 words, ", "\U0001f600", "1"]
)
@pytest.mark.parametrize("length", [2049, 9_999, 20_001, 30_003])
def test_long_texts_have_the_reference_s_ids_with_or_without_white_space(
    tokenizer_dir: Path, word: str, length: int
) -> None:
    fast, slow = long_text_builders(tokenizer_dir)
    text = (word * length)[:length]
    assert fast.text(text).ids == slow.text(text).ids


@cache
def long_text_builders(directory: Path) -> tuple[PromptBuilder, PromptBuilder]:
    return PromptBuilder.load(directory, cache_bytes=0), PromptBuilder.load(directory, backend="reference")
