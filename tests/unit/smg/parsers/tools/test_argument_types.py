"""ArgumentTypes and json_of: what the schema says of an argument, and what a text means then."""

from __future__ import annotations

from typing import Any

import pytest

from smg.parsers.tools.argument_types import ArgumentTypes, types_of
from smg.parsers.tools.base import ToolSchema
from smg.parsers.tools.text_arguments import json_of

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def types(schema: Any, **definitions: Any) -> set[str]:
    root = {"type": "object", "properties": {"a": schema}, "$defs": definitions}
    return set(ArgumentTypes(root).of("a"))


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (STRING, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1, None]}, {"string", "number", "null"}),
        ({"enum": [True, {}, [1]]}, {"boolean", "object", "array"}),
        ({"const": 1.5}, {"number"}),
        ({"anyOf": [STRING, NULL]}, {"string", "null"}),
        ({"oneOf": [{"oneOf": [INTEGER, NULL]}, STRING]}, {"integer", "null", "string"}),
        ({"anyOf": [STRING, {"description": "anything"}]}, set()),
        ({"allOf": [{"description": "x"}, INTEGER]}, {"integer"}),
        ({"properties": {}}, {"object"}),
        ({"items": STRING}, {"array"}),
        ({}, set()),
        (True, set()),
        ({"type": 5}, set()),
        ({"enum": []}, set()),
        ({"$ref": "#/$defs/name"}, {"string"}),
        ({"$ref": "#/$defs/a~1b"}, {"integer"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "https://example.com/schema"}, set()),
    ],
    ids=str,
)
def test_types_of_a_property(schema: Any, found: set[str]) -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}
    assert types(schema, name=STRING, loop=loop, **{"a/b": INTEGER}) == found


def test_a_schema_that_goes_deep_is_not_followed_to_its_end() -> None:
    deep: dict[str, Any] = STRING
    for _ in range(10_000):
        deep = {"anyOf": [deep]}
    assert types(deep) == set()


def test_other_keys_have_the_type_of_additional_properties() -> None:
    assert ArgumentTypes({"properties": {"a": INTEGER}, "additionalProperties": STRING}).of("b") == {"string"}
    assert ArgumentTypes({"properties": {"a": INTEGER}, "additionalProperties": False}).of("b") == set()


def test_the_whole_schema_may_be_a_reference() -> None:
    schema = {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": INTEGER}}}}
    assert ArgumentTypes(schema).of("a") == {"integer"}


def test_an_unknown_function_has_no_types() -> None:
    tools = [ToolSchema("f", {"properties": {"a": INTEGER}})]
    assert types_of(tools, "f").of("a") == {"integer"}
    assert types_of(tools, "g").of("a") == set()


@pytest.mark.parametrize(
    ("text", "allowed", "written"),
    [
        (" 5 ", "integer", "5"),
        ("5.0", "integer", "5.0"),
        ("5", "string integer", "5"),
        ("x", "string integer", '"x"'),
        ('"5"', "string null", r'"\"5\""'),
        ("null", "string null", "null"),
        ("true", "boolean", "true"),
        ("True", "boolean", "true"),
        ("TRUE", "boolean", '"TRUE"'),
        ("{'a': [1, None]}", "object", '{"a":[1,null]}'),
        ("{'a': 1} x", "object", "\"{'a': 1} x\""),
        ("[1, 2]", "object", "[1,2]"),
        ("", "integer", '""'),
        ("", "", '""'),
        ("01", "", '"01"'),
        ('"q"', "", '"q"'),
        ("None", "", '"None"'),
        ('a\u2028\n"b\\', "", '"a\u2028\\n\\"b\\\\"'),
    ],
    ids=str,
)
def test_what_a_text_means(text: str, allowed: str, written: str) -> None:
    assert json_of(text, frozenset(allowed.split())) == written
