"""The form of a response's text, and the rules that OpenAI's own hosted models add to it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.responses.shapes import Json, as_object, kind_of, one_of, optional, required
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

_TYPES = options_pb2.ResponseFormat
_FORMATS = ("text", "json_object", "json_schema")
_VERBOSITY = ("low", "medium", "high")
# S1's list; the open-weight gpt-oss family is anybody's to host, under its own name and under OpenAI's.
_HOSTED = re.compile(r"(?:gpt-(?!oss)|chatgpt-|codex-|o[134](?:-|$)|computer-use-preview(?:-|$))")
_SEGMENT = re.compile(r"(?:^|/)openai/(?!gpt-oss)")


def is_hosted_by_openai(model: str) -> bool:
    """The id names one of OpenAI's own hosted models."""
    return _HOSTED.match(model) is not None or _SEGMENT.search(model) is not None


def check_text(text: Json) -> None:
    """Check the `text` of a request.

    Raises:
        MalformedRequest: of a wrong shape.
        InvalidRequest: a schema without a name, or that is no object.
    """
    verbosity = optional(text, "verbosity", "text", str)
    if verbosity is not None:
        one_of(verbosity, _VERBOSITY, "text.verbosity")
    if text.get("format") is None:
        return
    form = as_object(text["format"], "text.format")
    kind = one_of(required(form, "type", "text.format", str), _FORMATS, "text.format.type")
    if kind != "json_schema":
        return
    name = required(form, "name", "text.format", str)
    optional(form, "strict", "text.format", bool)
    optional(form, "description", "text.format", str)
    if not name:
        raise InvalidRequest(
            "text.format.name: the name is empty; a schema needs a name", param="text.format.name"
        )
    schema: Any = form.get("schema")
    if not isinstance(schema, dict):
        raise InvalidRequest(
            f"text.format.schema: the schema is {kind_of(schema)}; it must be a JSON object",
            param="text.format.schema",
        )


def chat_format(text: Json | None) -> options_pb2.ResponseFormat | None:
    """The chat's format; None for plain text."""
    form = cast("Json", (text or {}).get("format") or {})
    kind = form.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return _TYPES(type=_TYPES.TYPE_JSON_OBJECT)
    result = _TYPES(
        type=_TYPES.TYPE_JSON_SCHEMA,
        name=form["name"],
        schema_json=json.dumps(form["schema"], ensure_ascii=False, separators=(",", ":")),
    )
    if form.get("strict") is not None:
        result.strict = form["strict"]
    if form.get("description") is not None:
        result.description = form["description"]
    return result


def check_hosted(text: Json | None, tools: Iterable[Json], said: Iterable[str]) -> None:
    """Check what OpenAI's API demands for its own models.

    Args:
        text: the form.
        tools: of the request.
        said: instructions and input, as texts.

    Raises:
        InvalidRequest: a strict schema is open, or JSON is asked for without the word.
    """
    form = cast("Json", (text or {}).get("format") or {})
    kind = form.get("type")
    if kind == "json_schema" and form.get("strict"):
        _check_closed(form["schema"], "text.format.schema", form["name"])
    if kind == "json_object" and not any("json" in each.lower() for each in said):
        raise InvalidRequest(
            "text.format: Response input messages must contain the word 'json' in some form to use "
            "'text.format' of type 'json_object'.",
            param="input",
        )
    for index, tool in enumerate(tools):
        place = f"tools[{index}]"
        members = tool["tools"] if tool["type"] == "namespace" else [tool]
        for member in members:
            if member["type"] == "function" and member.get("strict"):
                _check_closed(member.get("parameters") or {}, f"{place}.parameters", member["name"])


def _check_closed(schema: Any, place: str, name: str) -> None:
    """Every object node must set additionalProperties to false."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += cast("list[Any]", node)
            continue
        if not isinstance(node, dict):
            continue
        members = cast("Json", node)
        kind: Any = members.get("type")
        is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
        # A property may be called "properties" or "type": then these are schemas, and looked at below.
        is_schema = not isinstance(kind, dict)
        if (
            is_schema
            and (is_object or "properties" in members)
            and members.get("additionalProperties") is not False
        ):
            raise InvalidRequest(
                f"{place}: Invalid schema for {name[:60]!r}: 'additionalProperties' is required to be "
                "supplied and to be false.",
                param=place,
            )
        for key, value in members.items():
            if key == "properties" and isinstance(value, dict):
                waiting += cast("Json", value).values()
            elif key not in ("const", "enum", "default", "examples"):
                waiting.append(value)
