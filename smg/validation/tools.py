"""Rules of the tools of a request and of the choice among them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.validation.schema import schema_faults
from smg.validation.texts import listed, read_object, shown
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import chat_pb2, message_pb2

MAX_TOOLS = 4096
# All tools together, with their schemas: more than any model can read. A forced choice puts them into one schema, which
# goes to the worker in one message.
MAX_TOOLS_BYTES = 1 << 22
MAX_TOOL_FAULTS = 8
MAX_NAME_CHARS = 256
# Chat templates write a name as it is between quotes or on a line of its own, so it may not end either. All else works:
# OpenAI's own alphabet (letters, digits, _ and -), dots, and the letters of every script.
_UNUSABLE = re.compile('["\\\\\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]')
_MODES = options_pb2.ToolChoice
_FORCED = (_MODES.MODE_REQUIRED, _MODES.MODE_FUNCTION)


def tool_faults(request: chat_pb2.ChatRequest) -> list[Fault]:
    """Check the tools, and that the choice can be kept with them."""
    if len(request.tools) > MAX_TOOLS:
        return [("tools", f"tools has {len(request.tools)} tools; at most {MAX_TOOLS} are allowed")]
    size = sum(tool.ByteSize() for tool in request.tools)
    if size > MAX_TOOLS_BYTES:
        # Every tool is there as it was sent, and in parts.
        return [("tools", f"tools takes {size} bytes, all in all; at most {MAX_TOOLS_BYTES} are allowed")]
    faults: list[Fault] = []
    for index, tool in enumerate(request.tools):
        faults += _faults_of(tool, f"tools[{index}]")
        if len(faults) >= MAX_TOOL_FAULTS:
            break
    if request.HasField("tool_choice"):
        faults += _choice_faults(request)
    return faults


def is_usable_name(name: str) -> bool:
    """No template breaks on the name."""
    return _UNUSABLE.search(name) is None


def is_forced(request: chat_pb2.ChatRequest) -> bool:
    """True if the answer must be a call."""
    return request.tool_choice.mode in _FORCED


def _faults_of(tool: message_pb2.Tool, name: str) -> list[Fault]:
    faults: list[Fault] = []
    field = f"{name}.function.name"
    if not tool.name:
        faults.append((field, f"{field} is empty; a tool needs a name"))
    elif len(tool.name) > MAX_NAME_CHARS:
        sentence = f"{field} is {shown(tool.name)} with {len(tool.name)} characters"
        faults.append((field, f"{sentence}; at most {MAX_NAME_CHARS} are allowed"))
    elif _UNUSABLE.search(tool.name):
        allowed = "all characters but quotes, backslashes, line breaks and control characters"
        faults.append((field, f"{field} is {shown(tool.name)}; allowed are {allowed}"))
    if tool.parameters_json:
        faults += schema_faults(tool.parameters_json, f"{name}.function.parameters")
    if tool.source_json:
        faults += read_object(tool.source_json, name)[1]
    return faults


def _choice_faults(request: chat_pb2.ChatRequest) -> list[Fault]:
    choice = request.tool_choice
    names = {tool.name for tool in request.tools}
    if choice.mode not in _MODES.Mode.values():
        return [("tool_choice.mode", f"tool_choice.mode is {choice.mode}; no such value")]
    if choice.mode not in _FORCED and not choice.is_allowed_tools:
        return []
    if not names:
        return [("tool_choice", "tool_choice asks for a call, and tools is empty; declare the tools")]
    if choice.mode == _MODES.MODE_FUNCTION:
        return _unknown([choice.name], names)
    if choice.is_allowed_tools and choice.mode == _MODES.MODE_REQUIRED and not choice.allowed_names:
        return [
            ("tool_choice", "tool_choice asks for a call, and its own tools is empty; allow at least one")
        ]
    return _unknown(choice.allowed_names, names)


def _unknown(asked: Iterable[str], names: set[str]) -> list[Fault]:
    wrong = next((name for name in asked if name not in names), None)
    if wrong is None:
        return []
    return [("tool_choice", f"tool_choice names {shown(wrong)}; tools has {listed(names)}")]
