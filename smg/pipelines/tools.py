"""What a chat request's tools and tool choice mean: which the model sees, what form is forced, how calls are read.

A forced call is made certain by a JSON Schema: with `required` an array of {"name", "parameters"} objects, with a named
function the object of its arguments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from smg.pipelines.messages import parse_json
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smg_proto.chat.v1 import chat_pb2, message_pb2

_MODES = options_pb2.ToolChoice
FORCED = (_MODES.MODE_REQUIRED, _MODES.MODE_FUNCTION)
_DEFINITIONS = ("$defs", "definitions")


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


def forced_schema(request: chat_pb2.ChatRequest) -> str:
    """JSON Schema of the output with which a forced choice is answered.

    Raises:
        InvalidRequest: parameters that are not JSON.
    """
    tools = usable_tools(request)
    name = request.tool_choice.name if request.tool_choice.mode == _MODES.MODE_FUNCTION else ""
    if name:
        tool = next(tool for tool in tools if tool.name == name)
        return json.dumps(_parameters(tool), ensure_ascii=False)
    definitions = _Definitions()
    items = [_call_schema(tool, definitions) for tool in _distinct(tools)]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": items[0] if len(items) == 1 else {"anyOf": items},
    }
    if request.HasField("parallel_tool_calls") and not request.parallel_tool_calls:
        schema["maxItems"] = 1
    if definitions.schemas:
        schema["$defs"] = definitions.schemas
    return json.dumps(schema, ensure_ascii=False)


def _distinct(tools: Sequence[message_pb2.Tool]) -> Iterable[message_pb2.Tool]:
    return {tool.name: tool for tool in tools}.values()


def _call_schema(tool: message_pb2.Tool, definitions: _Definitions) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "parameters": definitions.lifted(_parameters(tool))},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _parameters(tool: message_pb2.Tool) -> dict[str, Any]:
    if tool.parameters_json:
        schema = parse_json(tool.parameters_json, "tools.function.parameters")
        if isinstance(schema, dict) and schema:
            return cast("dict[str, Any]", schema)
    return {"type": "object"}


class _Definitions:
    """The definitions of several schemas in one place, where `#/$defs/name` finds them.

    Attributes:
        schemas: the definitions by name. Where two schemas use a name for different things, the second gets another.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}

    def lifted(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema without its definitions, its references leading to them."""
        own = {
            f"#/{key}/{name}": (name, definition)
            for key in _DEFINITIONS
            for name, definition in _object(schema.get(key)).items()
        }
        if not own:
            return schema
        references = {old: f"#/$defs/{self._free_name(name, each)}" for old, (name, each) in own.items()}
        for old, (_, definition) in own.items():
            self.schemas[references[old].rpartition("/")[2]] = _redirected(definition, references)
        body = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
        return _redirected(body, references)

    def _free_name(self, name: str, definition: Any) -> str:
        candidate, number = name, 1
        while candidate in self.schemas and self.schemas[candidate] != definition:
            number += 1
            candidate = f"{name}_{number}"
        self.schemas.setdefault(candidate, definition)
        return candidate


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _redirected(schema: Any, references: dict[str, str]) -> Any:
    """A copy whose references are exchanged, also those that lead further into a definition."""
    if isinstance(schema, list):
        return [_redirected(item, references) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "$ref" and isinstance(value, str):
            result[key] = _exchanged(value, references)
        else:
            result[key] = _redirected(value, references)
    return result


def _exchanged(reference: str, references: dict[str, str]) -> str:
    for old, new in references.items():
        if reference == old or reference.startswith(f"{old}/"):
            return new + reference[len(old) :]
    return reference
