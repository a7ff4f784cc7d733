"""What a chat request's tools and tool choice mean: which the model sees, what form is forced, how calls are read.

A forced call is made certain by a JSON Schema: with `required` an array of {"name", "parameters"} objects, with a named
function the object of its arguments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.parsers.tools import ToolSchema
from smg.pipelines.messages import parse_json
from smg.validation.texts import MAX_SHOWN, shown
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg_proto.chat.v1 import chat_pb2, message_pb2

_MODES = options_pb2.ToolChoice
FORCED = (_MODES.MODE_REQUIRED, _MODES.MODE_FUNCTION)
# Keywords whose values are values, not schemas; and those whose members have names of the schema's own.
_VALUES = frozenset(("const", "enum", "default", "examples"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def usable_tools(request: chat_pb2.ChatRequest) -> list[message_pb2.Tool]:
    """The tools that the model may call: none with tool_choice none, else those that it allows."""
    choice = request.tool_choice
    if choice.mode == _MODES.MODE_NONE:
        return []
    if choice.is_allowed_tools:
        allowed = frozenset(choice.allowed_names)
        return [tool for tool in request.tools if tool.name in allowed]
    return list(request.tools)


def is_forced(request: chat_pb2.ChatRequest) -> bool:
    """True if the answer must be a call."""
    return request.HasField("tool_choice") and request.tool_choice.mode in FORCED


def forced_schemas(request: chat_pb2.ChatRequest) -> dict[str, Any]:
    """By function that may be called, the JSON Schema of its arguments; one where the choice names it.

    Raises:
        InvalidRequest: parameters that are not JSON, or that no object can match.
    """
    # A name given twice means the last one.
    tools = {tool.name: tool for tool in usable_tools(request)}
    name = request.tool_choice.name if request.tool_choice.mode == _MODES.MODE_FUNCTION else ""
    return {each: _object_schema(tool) for each, tool in tools.items() if not name or each == name}


def forced_schema(request: chat_pb2.ChatRequest) -> str:
    """JSON Schema of the output with which a forced choice is answered.

    Raises:
        InvalidRequest: parameters that are not JSON, or that no object can match.
    """
    # A name given twice means the last one.
    tools = {tool.name: tool for tool in usable_tools(request)}
    name = request.tool_choice.name if request.tool_choice.mode == _MODES.MODE_FUNCTION else ""
    if name:
        return json.dumps(_object_schema(tools[name]), ensure_ascii=False)
    definitions: dict[str, Any] = {}
    items = [_call_schema(tool, definitions) for tool in tools.values()]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": items[0] if len(items) == 1 else {"anyOf": items},
    }
    if request.HasField("parallel_tool_calls") and not request.parallel_tool_calls:
        schema["maxItems"] = 1
    if definitions:
        schema["$defs"] = definitions
    return json.dumps(schema, ensure_ascii=False)


def _call_schema(tool: message_pb2.Tool, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = _object_schema(tool)
    if '"$ref"' in tool.parameters_json:
        # Its references are paths from its own top, wherever they lead: it becomes a definition, and they are told so.
        place = str(len(definitions))
        definitions[place] = {
            key: value for key, value in _moved(parameters, f"#/$defs/{place}").items() if key != "$id"
        }
        parameters = {"$ref": f"#/$defs/{place}"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "parameters": parameters},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def tool_schemas(tools: Iterable[message_pb2.Tool]) -> tuple[ToolSchema, ...]:
    """What parsers need to know of the functions.

    Raises:
        InvalidRequest: parameters that are not JSON.
    """
    return tuple(ToolSchema(tool.name, _parameters(tool)) for tool in tools)


def _parameters(tool: message_pb2.Tool) -> dict[str, Any]:
    if tool.parameters_json:
        schema = parse_json(tool.parameters_json, "tools.function.parameters")
        if isinstance(schema, dict) and schema:
            return cast("dict[str, Any]", schema)
    return {"type": "object"}


def _object_schema(tool: message_pb2.Tool) -> dict[str, Any]:
    """The schema of a call's arguments, which are an object even where the tool's schema leaves that open."""
    schema = _parameters(tool)
    kind: Any = schema.get("type")
    if (isinstance(kind, str) and kind != "object") or (isinstance(kind, list) and "object" not in kind):
        raise InvalidRequest(
            f"tools: the parameters of {shown(tool.name)} have the type {json.dumps(kind)[:MAX_SHOWN]}; a function "
            "that must be called takes an object",
            param="tools",
        )
    return {**schema, "type": "object"} if kind is None or isinstance(kind, list) else schema


def _moved(schema: Any, place: str, *, has_names: bool = False) -> Any:
    """A copy of a schema that stands at another place: its references into itself lead there.

    Args:
        schema: any part of one.
        place: the new one, as a reference.
        has_names: the keys are not keywords.
    """
    if isinstance(schema, list):
        return [_moved(item, place) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if has_names:
            result[key] = _moved(value, place)
        elif key == "$ref" and isinstance(value, str):
            result[key] = place + value[1:] if value == "#" or value.startswith("#/") else value
        else:
            result[key] = value if key in _VALUES else _moved(value, place, has_names=key in _NAMED)
    return result
