"""Turns the tool choice of a response into that of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.errors import InvalidRequest, MalformedRequest
from smg.responses.shapes import Json, as_object, kind_of, names_of, objects, one_of, optional, required
from smg.responses.tools import BUILTIN_ITEMS
from smg.validation.texts import shown
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from smg.responses.tools import Toolbox

_Mode = options_pb2.ToolChoice
_WORDS = {"none": _Mode.MODE_NONE, "auto": _Mode.MODE_AUTO, "required": _Mode.MODE_REQUIRED}
_BUILTIN = frozenset(
    (
        *BUILTIN_ITEMS,
        "web_search",
        "web_search_preview_2025_03_11",
        "computer_use_preview",
        "apply_patch",
        "shell",
    )
)
_TYPES = _BUILTIN | {"function", "custom", "allowed_tools", "mcp"}


def checked_choice(choice: Any, tools: list[Json]) -> None:
    """See that a choice can be kept with the tools.

    Raises:
        MalformedRequest: it has no known form.
        InvalidRequest: it asks for tools that there are not.
    """
    if choice is None or choice == "none":
        return
    if isinstance(choice, str):
        one_of(choice, _WORDS, "tool_choice")
    else:
        _check_object(as_object(choice, "tool_choice"))
    if not tools:
        raise InvalidRequest(
            "tool_choice: Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            param="tool_choice",
        )
    if isinstance(choice, dict):
        _check_names(as_object(choice, "tool_choice"), tools)


def chat_choice(choice: Any, box: Toolbox) -> options_pb2.ToolChoice | None:
    """The chat's tool choice; None where everything is left open."""
    if choice is None or not box.functions:
        return None
    if isinstance(choice, str):
        return _Mode(mode=_WORDS[choice])
    kind = choice["type"]
    if kind in ("function", "custom"):
        return _Mode(mode=_Mode.MODE_FUNCTION, name=_dotted(choice))
    if kind == "allowed_tools":
        names = [name for tool in choice["tools"] for name in _members(tool, box)]
        return _Mode(mode=_WORDS[choice.get("mode", "auto")], allowed_names=names, is_allowed_tools=True)
    names = _members(choice, box)
    if not names:
        return None
    if len(names) == 1:
        return _Mode(mode=_Mode.MODE_FUNCTION, name=names[0])
    return _Mode(mode=_Mode.MODE_REQUIRED, allowed_names=names, is_allowed_tools=True)


def later_choice(choice: options_pb2.ToolChoice | None) -> options_pb2.ToolChoice | None:
    """The choice of every turn but the first: nothing is forced any more, what is not allowed stays so."""
    if choice is None or choice.mode in (_Mode.MODE_NONE, _Mode.MODE_AUTO):
        return choice
    if choice.is_allowed_tools:
        return _Mode(mode=_Mode.MODE_AUTO, allowed_names=choice.allowed_names, is_allowed_tools=True)
    return _Mode(mode=_Mode.MODE_AUTO)


def _check_object(choice: Json) -> None:
    kind = one_of(required(choice, "type", "tool_choice", str), _TYPES, "tool_choice.type")
    if kind in ("function", "custom"):
        required(choice, "name", "tool_choice", str)
        optional(choice, "namespace", "tool_choice", str)
    elif kind == "mcp":
        required(choice, "server_label", "tool_choice", str)
        optional(choice, "name", "tool_choice", str)
    elif kind == "allowed_tools":
        mode = optional(choice, "mode", "tool_choice", str)
        if mode is not None and mode not in ("auto", "required"):
            raise InvalidRequest(
                f"tool_choice.mode: the mode is {shown(mode)}; allowed are auto and required",
                param="tool_choice.mode",
            )
        for number, tool in enumerate(objects(choice.get("tools"), "tool_choice.tools")):
            place = f"tool_choice.tools[{number}]"
            kind = required(tool, "type", place, str)
            if kind in ("function", "custom"):
                required(tool, "name", place, str)
            elif kind not in _TYPES:
                raise MalformedRequest(f"{place}.type is {kind_of(kind)}; no such tool", param=place)


def _check_names(choice: Json, tools: list[Json]) -> None:
    asked = choice["tools"] if choice["type"] == "allowed_tools" else [choice]
    known = set(_declared(tools))
    for tool in asked:
        if tool["type"] in ("function", "custom") and _dotted(tool) not in known:
            raise InvalidRequest(
                f"tool_choice: Tool choice {shown(_dotted(tool))} not found in 'tools'; there is {names_of(known)}",
                param="tool_choice",
            )


def _declared(tools: list[Json]) -> list[str]:
    names: list[str] = []
    for tool in tools:
        if tool["type"] == "namespace":
            names += [f"{tool['name']}.{member['name']}" for member in tool["tools"]]
        elif tool["type"] in ("function", "custom"):
            names.append(tool["name"])
    return names


def _members(tool: Json, box: Toolbox) -> list[str]:
    """The functions that a reference means."""
    kind = tool["type"]
    if kind in ("function", "custom"):
        return [_dotted(tool)]
    if kind == "mcp":
        names = box.server_names(tool["server_label"])
        wanted = tool.get("name")
        return [name for name in names if wanted is None or box.origins[name].name == wanted]
    item = BUILTIN_ITEMS.get(kind)
    return [name for name, origin in box.origins.items() if item is not None and origin.item_type == item]


def _dotted(tool: Json) -> str:
    namespace = tool.get("namespace")
    return f"{namespace}.{tool['name']}" if namespace else tool["name"]
