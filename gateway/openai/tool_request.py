"""Turns the tools of a chat body and the choice among them into protobuf.

`functions` and `function_call` are the API's older names of `tools` and `tool_choice`; they count where the newer ones
are not set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.openai.explain import shown
from gateway.openai.json_text import json_text
from smg.errors import InvalidRequest, MalformedRequest
from smg_proto.chat.v1 import message_pb2, options_pb2

if TYPE_CHECKING:
    from gateway.openai.shapes import ChatShape, FunctionShape

_MODES = {
    "none": options_pb2.ToolChoice.MODE_NONE,
    "auto": options_pb2.ToolChoice.MODE_AUTO,
    "required": options_pb2.ToolChoice.MODE_REQUIRED,
}
_FORMS = (
    '{"type": "function", "function": {"name": ...}} and '
    '{"type": "allowed_tools", "mode": "auto" or "required", "tools": [{"type": "function", "name": ...}, ...]}'
)


def tools_of(shape: ChatShape, data: dict[str, Any]) -> list[message_pb2.Tool]:
    """The tools that a body declares. Each keeps the JSON that it was sent as, for chat templates.

    Args:
        shape: the checked body.
        data: the same body as plain JSON.

    Raises:
        MalformedRequest: a number beyond every float.
    """
    tools = shape.get("tools")
    if tools is not None:
        return [
            _tool(tool["type"], tool["function"], source, f"tools[{index}]")
            for index, (tool, source) in enumerate(zip(tools, data["tools"], strict=True))
        ]
    functions = shape.get("functions") or ()
    return [
        _tool("function", function, {"type": "function", "function": source}, f"functions[{index}]")
        for index, (function, source) in enumerate(zip(functions, data.get("functions") or (), strict=True))
    ]


def _tool(kind: str, function: FunctionShape, source: dict[str, Any], name: str) -> message_pb2.Tool:
    tool = message_pb2.Tool(
        type=kind,
        name=function["name"],
        description=function.get("description"),
        strict=function.get("strict"),
        source_json=json_text(source, name),
    )
    if function.get("parameters") is not None:
        tool.parameters_json = json_text(function.get("parameters"), name)
    return tool


def tool_choice_of(shape: ChatShape) -> options_pb2.ToolChoice | None:
    """The choice; None when the body leaves it open.

    Raises:
        MalformedRequest: of no known form.
        InvalidRequest: allowed_tools with a mode that there is not.
    """
    choice = shape.get("tool_choice")
    if choice is not None:
        return _word("tool_choice", choice) if isinstance(choice, str) else _object(choice)
    call = shape.get("function_call")
    if call is None:
        return None
    return _word("function_call", call) if isinstance(call, str) else _named(call["name"])


def _word(name: str, word: str) -> options_pb2.ToolChoice:
    if word not in _MODES:
        raise MalformedRequest(
            f"{name} is {shown(word)}; allowed are none, auto, required, and the objects {_FORMS}", param=name
        )
    return options_pb2.ToolChoice(mode=_MODES[word])


def _named(name: str) -> options_pb2.ToolChoice:
    return options_pb2.ToolChoice(mode=options_pb2.ToolChoice.MODE_FUNCTION, name=name)


def _object(choice: dict[str, Any]) -> options_pb2.ToolChoice:
    kind = choice.get("type")
    function: Any = choice.get("function")
    if kind == "function" and isinstance(function, dict):
        name = cast("dict[str, Any]", function).get("name")
        if isinstance(name, str):
            return _named(name)
    mode, tools = choice.get("mode"), choice.get("tools")
    if kind == "allowed_tools" and isinstance(mode, str) and isinstance(tools, list):
        names = [_reference(tool) for tool in cast("list[Any]", tools)]
        if None not in names:
            return _allowed(mode, cast("list[str]", names))
    raise MalformedRequest(
        f"tool_choice is an object of no known form; allowed are {_FORMS}", param="tool_choice"
    )


def _allowed(mode: str, names: list[str]) -> options_pb2.ToolChoice:
    if mode not in ("auto", "required"):
        raise InvalidRequest(
            f"tool_choice.mode is {shown(mode)}; allowed are auto and required", param="tool_choice.mode"
        )
    return options_pb2.ToolChoice(mode=_MODES[mode], allowed_names=names, is_allowed_tools=True)


def _reference(tool: Any) -> str | None:
    """Name of {"type": "function", "name": ...}, or of OpenAI's {"type": "function", "function": {"name": ...}}."""
    entry = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    function: Any = entry.get("function", entry)
    name = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
    return name if entry.get("type") == "function" and isinstance(name, str) else None
