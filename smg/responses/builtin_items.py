"""Turns a call of a built-in tool that a server backs into the item that it is. S1: completed, also on failure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.responses.shapes import Json

# The event between in_progress and completed.
STEPS: Mapping[str, str] = MappingProxyType(
    {
        "web_search_call": "searching",
        "file_search_call": "searching",
        "code_interpreter_call": "interpreting",
        "image_generation_call": "generating",
    }
)


def begun_item(item_type: str, item_id: str, arguments: str) -> Json:
    """The item while the call runs."""
    return {"id": item_id, "type": item_type, "status": "in_progress", **_content(item_type, arguments, None)}


def ended_item(item_type: str, item_id: str, arguments: str, output: str) -> Json:
    """The item with what the call has brought, a failure's text too."""
    return {"id": item_id, "type": item_type, "status": "completed", **_content(item_type, arguments, output)}


def _content(item_type: str, arguments: str, output: str | None) -> Json:
    given = _arguments(arguments)
    if item_type == "web_search_call":
        action: Json = {"type": "search", "query": _text(given, "query", arguments)}
        if output is not None:
            action["sources"] = []
        return {"action": action}
    if item_type == "file_search_call":
        results = None if output is None else [{"text": output}]
        return {"queries": [_text(given, "query", arguments)], "results": results}
    if item_type == "code_interpreter_call":
        outputs = None if output is None else [{"type": "logs", "logs": output}]
        return {"code": _text(given, "code", arguments), "container_id": "", "outputs": outputs}
    return {"result": output}


def _arguments(arguments: str) -> Json:
    try:
        value: Any = orjson.loads(arguments or "{}")
    except ValueError:
        return {}
    return cast("Json", value) if isinstance(value, dict) else {}


def _text(given: Json, name: str, otherwise: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else otherwise
