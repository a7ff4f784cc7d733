"""Makes the schemas of request bodies from what checks them: the shapes, the ranges and the other rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.openai import shapes
from gateway.openapi import bounds
from gateway.openapi.narrow import narrow_member, narrow_number
from gateway.responses.shapes import RESPONSE
from smg.responses.request import OWN_RANGES, RANGES
from smg.validation import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import TypeAdapter

    from gateway.openapi.bounds import Bounds
    from smg.validation.rules import Range

    Json = dict[str, Any]

REF = "#/components/schemas/{model}"
CHAT_REQUEST = "ChatRequest"
COMPLETION_REQUEST = "CompletionRequest"
RESPONSE_REQUEST = "ResponseRequest"


def request_schemas() -> dict[str, Json]:
    """The bodies and what is inside them, by name.

    Raises:
        LookupError: a rule for a member that no shape has.
    """
    inside: dict[str, Json] = {}
    chat = body_schema(shapes.CHAT, {**rules.CHAT, **rules.CHAT_SAMPLING}, bounds.CHAT, inside)
    completion = body_schema(
        shapes.COMPLETION, {**rules.COMPLETION, **rules.COMPLETION_SAMPLING}, bounds.COMPLETION, inside
    )
    ranges = {
        ("max_output_tokens" if name == "max_completion_tokens" else name): allowed
        for name, allowed in {**RANGES, **OWN_RANGES}.items()
        if name != "min_tokens"
    }
    response = body_schema(RESPONSE, ranges, bounds.RESPONSE, inside)
    for name, members in bounds.INSIDE.items():
        _narrow(inside[name], members)
    schemas = {CHAT_REQUEST: chat, COMPLETION_REQUEST: completion, RESPONSE_REQUEST: response, **inside}
    for name, keywords in bounds.JOINED.items():
        schemas[name] |= keywords
    return schemas


def body_schema(
    shape: TypeAdapter[Any], ranges: Mapping[str, Range], members: Bounds, inside: dict[str, Json]
) -> Json:
    """One body's schema; the shapes inside it are added to `inside`.

    Raises:
        LookupError: a rule for a member that the shape does not have.
    """
    schema, definitions = shape_schema(shape)
    inside |= definitions
    properties = schema["properties"]
    for name, allowed in ranges.items():
        narrow_number(properties[name], allowed)
    _narrow(schema, members)
    return schema


def shape_schema(shape: TypeAdapter[Any]) -> tuple[Json, dict[str, Json]]:
    """A shape's schema and those inside it, by their names in the document: those of the classes, less "Shape"."""
    schema = cast("Json", _tidy(shape.json_schema(ref_template=REF)))
    definitions: dict[str, Json] = schema.pop("$defs", {})
    return schema, {_name(name): definition for name, definition in definitions.items()}


def _narrow(schema: Json, members: Bounds) -> None:
    for name, kinds in members.items():
        narrow_member(schema["properties"][name], kinds)


def _name(name: str) -> str:
    return name.removesuffix("Shape")


def _tidy(value: Any) -> Any:
    """Without the titles that pydantic makes of the members' names; of docstrings the first sentence."""
    if isinstance(value, list):
        return [_tidy(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    tidy: Json = {}
    for key, item in cast("Json", value).items():
        if key in ("properties", "$defs"):
            # Here keys are names, which may be those of keywords.
            tidy[key] = {name: _tidy(schema) for name, schema in item.items()}
        elif key == "$ref":
            tidy[key] = _name(item)
        elif key == "description":
            tidy[key] = " ".join(item.split(". ")[0].split()).rstrip(".") + "."
        elif key != "title":
            tidy[key] = _tidy(item)
    return tidy
