"""Forced calls in the model's own format: what grammars allow is what the format's parser reads as calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from smg.parsers.assemble import assemble
from smg.parsers.output import OutputParser
from smg.parsers.tools import tool_parser
from smg.parsers.tools.frames import FRAMES
from smg.pipelines.native_calls import native_constraint, native_kind
from smg.prompt.builder import PromptBuilder

if TYPE_CHECKING:
    from pathlib import Path

SCHEMAS: dict[str, Any] = {
    "get": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "größe": {"type": "object", "properties": {}, "additionalProperties": False},
}


def written(name: str, *calls: tuple[str, str]) -> str:
    """Calls as the format has them."""
    frame = FRAMES[name]
    texts = [frame.begin(function) + arguments + frame.after for function, arguments in calls]
    return frame.opening + frame.separator.join(texts) + frame.closing


@pytest.mark.parametrize("name", FRAMES, ids=str)
def test_the_format_s_own_parser_reads_the_calls(name: str) -> None:
    parser = OutputParser(None, tool_parser(name))
    pieces = parser.feed(written(name, ("get", '{"city": "<b>"}'), ("größe", "{}"))) + parser.finish(
        is_cut=False
    )
    whole = assemble(pieces)
    assert [(call.name, call.arguments) for call in whole.calls] == [
        ("get", '{"city":"<b>"}'),
        ("größe", "{}"),
    ]
    assert whole.content is None


@pytest.mark.parametrize("name", FRAMES, ids=str)
@pytest.mark.parametrize("is_single", [True, False])
def test_the_grammar_allows_calls_and_nothing_else(name: str, is_single: bool) -> None:
    pytest.importorskip("llguidance")
    from servicers.local.grammar import GrammarCompiler
    from tests.unit.servicers.local.byte_tokenizer import EOS, VOCAB_SIZE, byte_tokenizer_json, ids_of

    compiler = GrammarCompiler(byte_tokenizer_json(), vocab_size=VOCAB_SIZE, eos_token_ids=[EOS], capacity=4)
    constraint = native_constraint("lark", name, SCHEMAS, is_single=is_single)

    def accepts(text: str) -> bool:
        grammar = compiler.compile(constraint)
        for token in ids_of(text):
            if not grammar.allowed()[token]:
                return False
            grammar.accept(token)
        return bool(grammar.is_finished or grammar.allowed()[EOS])

    one, two = ("get", '{"city": "x"}'), ("größe", "{}")
    assert accepts(written(name, one))
    assert accepts(written(name, two))
    assert accepts(written(name, one, two)) == (not is_single)
    assert not accepts(written(name, ("get", "{}")))
    assert not accepts(written(name, ("other", "{}")))
    assert not accepts("")
    assert not accepts("No.")


def test_a_structural_tag_says_the_same() -> None:
    tag = json.loads(native_constraint("structural_tag", "nemotron", SCHEMAS, is_single=True).structural_tag)
    opening, calls, closing = tag["format"]["elements"]
    assert (opening["value"], closing["value"]) == ("<TOOLCALL>[", "]</TOOLCALL>")
    assert (calls["at_least_one"], calls["stop_after_first"], calls["separator"]) == (True, True, ", ")
    assert calls["tags"][0] == {
        "type": "tag",
        "begin": '{"name": "get", "arguments": ',
        "content": {"type": "json_schema", "json_schema": SCHEMAS["get"]},
        "end": "}",
    }
    plain = json.loads(native_constraint("structural_tag", "hermes", SCHEMAS, is_single=False).structural_tag)
    assert plain["format"]["type"] == "tags_with_separator"


def test_only_what_every_worker_enforces_is_used(tokenizer_dir: Path) -> None:
    tokenizer = PromptBuilder.load(tokenizer_dir).tokenizer
    both, lark, none = ("json_schema", "structural_tag", "lark"), ("json_schema", "lark"), ("json_schema",)
    assert native_kind("phi4_mini", tokenizer, [both]) == "structural_tag"
    assert native_kind("phi4_mini", tokenizer, [both, lark]) == "lark"
    assert native_kind("phi4_mini", tokenizer, [both, none]) is None
    assert native_kind("phi4_mini", tokenizer, []) is None
    assert native_kind("glm45", tokenizer, [both]) == "structural_tag"
    assert native_kind("glm45", tokenizer, [both, lark]) is None  # its arguments are no JSON
    assert native_kind("pythonic", tokenizer, [both]) is None
    is_special = bool(tokenizer.specials_in(FRAMES["hermes"].marks))
    assert native_kind("hermes", tokenizer, [both]) == (None if is_special else "structural_tag")
