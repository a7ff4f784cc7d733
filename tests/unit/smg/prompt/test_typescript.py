"""Types of gpt-oss prompts: as openai-harmony 0.0.8 writes them, from which these texts were taken."""

from __future__ import annotations

from typing import Any

import pytest

from smg.prompt.typescript import MAX_DEPTH, type_of


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({}, "any"),
        (True, "any"),
        ([], "any"),
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "any"),
        ({"type": "file"}, "any"),
        ({"anyOf": [{"type": "string"}]}, "any"),
        ({"$ref": "#/$defs/z"}, "any"),
        ({"properties": {"a": {"type": "string"}}}, "any"),
        ({"type": ["object", "null"]}, "object | null"),
        ({"type": ["integer", "string"]}, "number | string"),
        ({"type": []}, "any"),
        ({"type": "array"}, "Array<any>"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, '"a" | "b"[]'),
        ({"type": "string", "enum": [1]}, "string"),
        ({"type": "object"}, "{\n}"),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer", "default": 3, "description": "x"}]},
            "\n | string\n | number // x default: 3",
        ),
        (an_object(a={"type": "string", "nullable": True}), "{\na?: string | null,\n}"),
        (an_object(a={"type": ["string", "null"], "nullable": True}), "{\na?: string | null,\n}"),
        ({**an_object(a={"type": "string"}), "required": ["a"]}, "{\na: string,\n}"),
        ({**an_object(a={"type": "string"}), "required": "a"}, "{\na?: string,\n}"),
        ({**an_object(), "description": "top"}, "// top\n{\n}"),
        (
            an_object(
                a={
                    "type": "string",
                    "enum": ["x", "y"],
                    "nullable": True,
                    "default": "x",
                    "title": "T",
                    "description": "D",
                    "examples": ["p", 3],
                }
            ),
            '{\n// T\n//\n// D\n// Examples:\n// - "p"\na?: "x" | "y" | null, // default: x\n}',
        ),
        (an_object(a={"type": "string", "default": 'it "q"'}), '{\na?: string, // default: "it "q""\n}'),
        (an_object(a={"default": {"a": [1]}}), '{\na?: any, // default: {"a":[1]}\n}'),
        (
            an_object(
                b={
                    "type": "array",
                    "items": {**an_object(a={"type": "number", "description": "aa"}), "required": ["a"]},
                }
            ),
            "{\nb?: {\n    // aa\n    a: number,\n    }[],\n}",
        ),
        (
            an_object(o={**an_object(x={"type": "boolean"}), "description": "an object"}),
            "{\n// an object\no?:     // an object\n{\n    x?: boolean,\n    },\n}",
        ),
        (
            an_object(
                a={
                    "oneOf": [
                        {"type": "string", "description": "s", "default": "d"},
                        {"type": "integer", "description": "t", "default": 2},
                    ],
                    "description": "other",
                    "default": 5,
                }
            ),
            '{\n// other\n// default: 5\na?:\n | string // default: "d"\n | number // t default: 2\n,\n}',
        ),
        (
            an_object(a={"oneOf": [{"type": "string", "description": "s"}, {}], "description": "s"}),
            "{\na?:\n | string\n | any\n,\n}",
        ),
        (
            an_object(u={"oneOf": [{**an_object(x={"type": "string"}), "description": "v"}]}),
            "{\nu?:\n |    // v\n{\n   x?: string,\n   } // v\n,\n}",
        ),
        (an_object(a={"oneOf": []}), "{\na?:\n,\n}"),
    ],
    ids=str,
)
def test_a_schema_is_written(schema: Any, written: str) -> None:
    assert type_of(schema) == written


@pytest.mark.parametrize("key", ["items", "oneOf", "properties"])
def test_a_deep_schema_ends_somewhere(key: str) -> None:
    schema: Any = {"type": "string"}
    for _ in range(5000):
        schema = {
            "items": {"type": "array", "items": schema},
            "oneOf": {"oneOf": [schema]},
            "properties": an_object(a=schema),
        }[key]
    assert type_of(schema).count("any") == 1
    assert len(type_of(schema)) < 200 * MAX_DEPTH * 4
