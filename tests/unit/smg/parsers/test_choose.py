"""Which parsers a model gets when nobody says which."""

from __future__ import annotations

import re

import pytest

from smg.parsers.choose import reasoning_parser_name, tool_parser_name
from smg.parsers.reasoning import REASONING_PARSERS, reasoning_parser
from smg.parsers.tools import TOOL_PARSERS, tool_parser


def vocabulary(*tokens: str):
    return lambda text: text in tokens


@pytest.mark.parametrize(
    ("template", "tokens", "name"),
    [
        ("{{ '<tool_call>\n' }}", (), "hermes"),
        ("", ("<tool_call>",), "hermes"),
        ("{{ messages }}", ("<think>",), "json"),
        ("<|python_tag|>", (), "json"),
    ],
    ids=str,
)
def test_the_tool_parser_follows_the_marker(template: str, tokens: tuple[str, ...], name: str) -> None:
    assert tool_parser_name(template, vocabulary(*tokens)) == name
    assert name in TOOL_PARSERS


@pytest.mark.parametrize(
    ("template", "tokens", "name"),
    [
        ("{{ '<think>\n' }}", (), "think_tag"),
        ("content.split('</think>')", (), "think_tag"),
        ("", ("</think>",), "think_tag"),
        ("<tool_call>", ("<tool_call>",), None),
        ("", (), None),
    ],
    ids=str,
)
def test_the_reasoning_parser_follows_the_tags(
    template: str, tokens: tuple[str, ...], name: str | None
) -> None:
    assert reasoning_parser_name(template, vocabulary(*tokens)) == name
    assert name is None or name in REASONING_PARSERS


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=re.escape("unknown tool call parser 'herms'; known: hermes, json")):
        tool_parser("herms")
    with pytest.raises(ValueError, match=re.escape("unknown reasoning parser 'think'; known: think_tag")):
        reasoning_parser("think", starts_inside=False)
