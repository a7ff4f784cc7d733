"""Checks the items of an input: their kinds, and the shape of what each must have.

A fault of shape is a json_parse_error, a broken rule a 400, as S1 has them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest, MalformedRequest
from smg.responses.shapes import Json, as_object, kind_of, one_of, optional, required

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROLES = ("assistant", "developer", "system", "user")
MAX_INPUT_ITEMS = 20_000
TEXT_PARTS = frozenset(("input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"))
MEDIA_PARTS = frozenset(("input_image", "input_file", "input_audio"))
_PARTS = TEXT_PARTS | MEDIA_PARTS
REFERENCE = "item_reference"


def checked_input(items: list[Any]) -> list[Json]:
    """The items of an input, each with its type.

    Raises:
        MalformedRequest: one has a wrong shape, or is of no known kind.
        InvalidRequest: one breaks a rule.
    """
    if len(items) > MAX_INPUT_ITEMS:
        raise InvalidRequest(
            f"input: input has {len(items)} items; at most {MAX_INPUT_ITEMS} are allowed", param="input"
        )
    return [
        _checked(f"input[{index}]", as_object(item, f"input[{index}]")) for index, item in enumerate(items)
    ]


def text_item(text: str) -> Json:
    """An input that is nothing but text, as the item that it stands for."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _checked(where: str, item: Json) -> Json:
    kind = optional(item, "type", where, str)
    if kind is None:
        # Messages are told by their role, references by having nothing but an id.
        kind = "message" if "role" in item or "id" not in item else REFERENCE
        item = {**item, "type": kind}
    check = _CHECKS.get(kind)
    if check is None:
        one_of(kind, _CHECKS.keys(), f"{where}.type")
    else:
        check(where, item)
    return item


def _message(where: str, item: Json) -> None:
    role = required(item, "role", where, str)
    if role not in ROLES:
        place = f"{where}.role"
        raise InvalidRequest(
            f"{place}: Invalid value: {role[:60]!r}. Supported values are: {', '.join(ROLES)}.", param=place
        )
    content = _content(where, item, "content")
    if role == "user" and not content:
        raise InvalidRequest(
            f"{where}.content: the content of a user message is empty; it needs text or parts",
            param=f"{where}.content",
        )


def _content(where: str, item: Json, name: str) -> str | list[Any]:
    place = f"{where}.{name}"
    value: Any = item.get(name)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        what = "missing" if name not in item else kind_of(value)
        raise MalformedRequest(f"{place} is {what}; it must be a string or an array of parts", param=place)
    parts = cast("list[Any]", value)
    for number, entry in enumerate(parts):
        part_place = f"{place}[{number}]"
        part = as_object(entry, part_place)
        kind = one_of(required(part, "type", part_place, str), _PARTS, f"{part_place}.type")
        if kind in TEXT_PARTS:
            required(part, "refusal" if kind == "refusal" else "text", part_place, str)
    return parts


def _reasoning(where: str, item: Json) -> None:
    optional(item, "encrypted_content", where, str)
    for name in ("content", "summary"):
        if item.get(name) is not None:
            _content(where, item, name)


def _function_call(where: str, item: Json) -> None:
    _named(where, item, ("call_id", "name", "arguments"))
    optional(item, "namespace", where, str)


def _output(where: str, item: Json) -> None:
    required(item, "call_id", where, str)
    _content(where, item, "output")


def _custom_call(where: str, item: Json) -> None:
    _named(where, item, ("call_id", "name", "input"))
    optional(item, "namespace", where, str)


def _mcp_call(where: str, item: Json) -> None:
    _named(where, item, ("name", "arguments", "server_label"))
    optional(item, "output", where, str)
    error: Any = item.get("error")
    if isinstance(error, str):
        # S1: an older item's plain string is read as the error of a tool.
        item["error"] = {"type": "mcp_tool_execution_error", "content": error}
    elif error is not None:
        as_object(error, f"{where}.error")


def _approval_request(where: str, item: Json) -> None:
    _named(where, item, ("id", "name", "arguments", "server_label"))


def _approval_response(where: str, item: Json) -> None:
    required(item, "approval_request_id", where, str)
    required(item, "approve", where, bool)
    optional(item, "reason", where, str)


def _reference(where: str, item: Json) -> None:
    required(item, "id", where, str)


def _named(where: str, item: Json, names: tuple[str, ...]) -> None:
    for name in names:
        required(item, name, where, str)


def _anything(where: str, item: Json) -> None:
    """Kept, and not looked into."""
    optional(item, "id", where, str)


_CHECKS: Mapping[str, Callable[[str, Json], None]] = MappingProxyType(
    {
        "message": _message,
        "reasoning": _reasoning,
        "function_call": _function_call,
        "function_call_output": _output,
        "custom_tool_call": _custom_call,
        "custom_tool_call_output": _output,
        "mcp_list_tools": _anything,
        "mcp_call": _mcp_call,
        "mcp_approval_request": _approval_request,
        "mcp_approval_response": _approval_response,
        REFERENCE: _reference,
        "web_search_call": _anything,
        "file_search_call": _anything,
        "code_interpreter_call": _anything,
        "image_generation_call": _anything,
        "computer_call": _anything,
        "computer_call_output": _anything,
        "local_shell_call": _anything,
        "local_shell_call_output": _anything,
        "shell_call": _anything,
        "shell_call_output": _anything,
        "apply_patch_call": _anything,
        "apply_patch_call_output": _anything,
        "compaction": _anything,
    }
)
