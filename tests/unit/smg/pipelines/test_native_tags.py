"""Forced calls as structural tags: what xgrammar allows is what the format's parser reads, for formats of tags and marks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from smg.parsers.assemble import assemble
from smg.parsers.output import OutputParser
from smg.parsers.tools import ToolSchema, reads_schemas, tool_parser
from smg.parsers.tools.tag_frames import TAG_FRAMES
from smg.pipelines.native_calls import native_constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Arguments = Mapping[str, Any]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "n": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}
SCHEMAS = {"get": SCHEMA, "größe-2": SCHEMA}
FULL: Arguments = {"city": 'Pa <b>"ris', "n": 5, "tags": ["a", "b"]}
SHORT: Arguments = {"city": "x"}


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def dsml(arguments: Arguments, space: str) -> str:
    tag = f"｜DSML｜{space}parameter"
    return "".join(
        f'<{tag} name="{key}" string="{json.dumps(isinstance(value, str))}">{plain(value)}</{tag}>\n'
        for key, value in arguments.items()
    )


def elements(arguments: Arguments) -> str:
    mark = "]<]minimax[>["

    def inner(value: Any) -> str:
        if isinstance(value, list):
            return "".join(f"{mark}<item>{each}{mark}</item>" for each in value)
        return plain(value)

    return "".join(f"{mark}<{key}>{inner(value)}{mark}</{key}>" for key, value in arguments.items())


STYLES: Mapping[str, Callable[[Arguments], str]] = {
    "json": json.dumps,
    "qwen_xml": lambda given: "\n".join(
        f"<parameter={key}>\n{plain(value)}\n</parameter>" for key, value in given.items()
    ),
    "glm_xml": lambda given: "".join(
        f"<arg_key>{key}</arg_key><arg_value>{plain(value)}</arg_value>" for key, value in given.items()
    ),
    "minimax_xml": lambda given: "".join(
        f'<parameter name="{key}">{plain(value)}</parameter>\n' for key, value in given.items()
    ),
    "minimax_m3_xml": elements,
    "deepseek_xml": lambda given: dsml(given, ""),
    "deepseek_v4_1_xml": lambda given: dsml(given, " "),
}


def written(name: str, *calls: tuple[str, Arguments]) -> str:
    """Calls as the format has them."""
    frame = TAG_FRAMES[name]
    number = f"0{frame.behind_number}" if frame.is_numbered else ""
    texts = [
        frame.begin(function) + number + STYLES[frame.style](arguments) + frame.after
        for function, arguments in calls
    ]
    return frame.opening + frame.separator.join(texts) + frame.closing


@pytest.mark.parametrize("name", TAG_FRAMES, ids=str)
def test_the_format_s_own_parser_reads_the_calls(name: str) -> None:
    schemas = [ToolSchema(function, SCHEMA) for function in SCHEMAS] if reads_schemas(name) else []
    parser = OutputParser(None, tool_parser(name, schemas))
    text = written(name, ("get", FULL), ("größe-2", SHORT))
    whole = assemble([*parser.feed(text), *parser.finish(is_cut=False)])
    assert [(call.name, json.loads(call.arguments)) for call in whole.calls] == [
        ("get", FULL),
        ("größe-2", SHORT),
    ]
    assert not whole.content


@pytest.mark.parametrize("name", TAG_FRAMES, ids=str)
@pytest.mark.parametrize("is_single", [True, False])
def test_xgrammar_allows_calls_and_nothing_else(name: str, is_single: bool) -> None:
    # It brings triton, which is larger than all that the tests need else; so it is no part of the extra `dev`.
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar>=0.2 is not installed")
    vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[256])
    constraint = native_constraint("structural_tag", name, SCHEMAS, is_single=is_single)
    assert constraint is not None
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(constraint.structural_tag)

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return matcher.accept_string(text) and matcher.accept_token(256)

    assert accepts(written(name, ("get", FULL)))
    assert accepts(written(name, ("größe-2", SHORT)))
    assert accepts(written(name, ("get", FULL), ("größe-2", SHORT))) == (not is_single)
    assert not accepts(written(name, ("get", {"n": 5})))
    assert not accepts(written(name, ("other", SHORT)))
    assert not accepts("No.")
    assert not accepts("")


@pytest.mark.parametrize("function", ["a>b", "a b", "a:b", "a=b", "a/b", "a｜b"])
def test_a_name_that_looks_like_a_mark_is_not_held_to_the_format(function: str) -> None:
    constraint = native_constraint("structural_tag", "qwen3_coder", {function: SCHEMA}, is_single=True)
    assert constraint is None
