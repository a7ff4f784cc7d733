"""Items as they are kept in conversations: which kinds there are, what of each is kept, and their ids.

Source: S1's text on conversation items, which is the OpenAI API's with what this gateway does not carry out marked.
"""

from __future__ import annotations

import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import orjson

from smg.errors import InvalidRequest
from smg.storage.records import StoredItem

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE = "item_reference"
MAX_ITEM_ID_CHARS = 64

# What is kept of each kind beside id, type and status; None for everything.
_KEPT: Mapping[str, tuple[str, ...] | None] = MappingProxyType(
    {
        "message": ("role", "content", "phase"),
        "reasoning": ("content", "summary", "encrypted_content"),
        "mcp_list_tools": ("tools", "server_label", "error"),
        "mcp_call": ("name", "arguments", "output", "server_label", "error", "approval_request_id"),
        "function_call": None,
        "function_call_output": ("call_id", "output"),
        "file_search_call": None,
        "computer_call": None,
        "computer_call_output": None,
        "web_search_call": None,
        "image_generation_call": None,
        "code_interpreter_call": None,
        "local_shell_call": None,
        "local_shell_call_output": None,
        "mcp_approval_request": None,
        "mcp_approval_response": None,
        "custom_tool_call": None,
        "custom_tool_call_output": None,
    }
)
_UNDERSTOOD = frozenset(("message", "reasoning", "mcp_list_tools", "mcp_call", REFERENCE))
_PREFIXES = MappingProxyType(
    {
        "message": "msg",
        "reasoning": "rs",
        "mcp_list_tools": "mcpl",
        "mcp_call": "mcp",
        "mcp_approval_request": "mcpr",
        "function_call": "fc",
        "custom_tool_call": "ctc",
        "web_search_call": "ws",
        "code_interpreter_call": "ci",
        "file_search_call": "fs",
        "image_generation_call": "ig",
    }
)


def new_item_id(kind: str) -> str:
    """An id that nobody else has, with the prefix of its kind."""
    return f"{_PREFIXES.get(kind) or kind[:3]}_{secrets.token_hex(25)}"


def is_kind(kind: str) -> bool:
    """Items of this kind can be put into conversations, or referred to."""
    return kind in _KEPT or kind == REFERENCE


def checked_item(index: int, value: object, created_at: int) -> StoredItem | str:
    """An item to keep, or the id of one that is referred to.

    Args:
        index: its place in the request, for messages.
        value: as the client has sent it.
        created_at: Unix time in seconds.

    Raises:
        InvalidRequest: not an item of a known kind.
    """
    where = f"items[{index}]"
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where} must be an object", param=where)
    item = cast("dict[str, Any]", value)
    kind = item.get("type", "message")
    if kind == REFERENCE:
        return _own_id(where, item) or _without(where, "id", "an item_reference names an item by its id")
    if not isinstance(kind, str) or kind not in _KEPT:
        known = ", ".join((*_KEPT, REFERENCE))
        raise InvalidRequest(
            f"{where}.type is {str(kind)[:60]!r}; it must be one of {known}", param=f"{where}.type"
        )
    item_id = _own_id(where, item) or new_item_id(kind)
    kept: dict[str, Any] = {"id": item_id, "type": kind, **_kept(where, kind, item)}
    kept["status"] = _status(where, item)
    try:
        body = orjson.dumps(kept).decode()
    except TypeError as error:
        raise InvalidRequest(f"{where} cannot be kept: {error}", param=where) from error
    return StoredItem(item_id, created_at, body)


def warning_of(value: object) -> str | None:
    """What to say of an item that is kept without being understood; None for one that is."""
    kind = cast("dict[str, Any]", value).get("type", "message")
    if kind in _UNDERSTOOD:
        return None
    return (
        f"Item type '{kind}' is accepted but not yet implemented. "
        "The item will be stored but may not function as expected."
    )


def _kept(where: str, kind: str, item: dict[str, Any]) -> dict[str, Any]:
    if kind == "message":
        return _message(where, item)
    names = _KEPT[kind]
    if names is None:
        return {name: value for name, value in item.items() if name not in ("id", "type", "status")}
    kept: dict[str, Any] = {name: item[name] for name in names if item.get(name) is not None}
    if kind == "reasoning":
        kept.setdefault("content", [])
        if not kept.get("summary"):
            kept.pop("summary", None)
    return kept


def _message(where: str, item: dict[str, Any]) -> dict[str, Any]:
    role = item.get("role")
    if not isinstance(role, str) or not role:
        _without(where, "role", "a message has one")
    content: Any = item.get("content")
    if isinstance(content, str):
        part = "output_text" if role == "assistant" else "input_text"
        content = [{"type": part, "text": content}]
    elif content is None:
        content = []
    elif not isinstance(content, list):
        raise InvalidRequest(
            f"{where}.content must be a string or an array of parts", param=f"{where}.content"
        )
    kept: dict[str, Any] = {"role": role, "content": content}
    if item.get("phase") is not None:
        kept["phase"] = item["phase"]
    return kept


def _status(where: str, item: dict[str, Any]) -> str:
    status = item.get("status")
    if status is None:
        return "completed"
    if not isinstance(status, str):
        raise InvalidRequest(f"{where}.status must be a string", param=f"{where}.status")
    return status


def _own_id(where: str, item: dict[str, Any]) -> str | None:
    item_id = item.get("id")
    if item_id is None:
        return None
    if not isinstance(item_id, str) or not 0 < len(item_id) <= MAX_ITEM_ID_CHARS or not item_id.isprintable():
        raise InvalidRequest(
            f"{where}.id must be a printable string of 1 to {MAX_ITEM_ID_CHARS} characters",
            param=f"{where}.id",
        )
    return item_id


def _without(where: str, name: str, why: str) -> str:
    raise InvalidRequest(f"{where}.{name} is missing; {why}", param=f"{where}.{name}")
