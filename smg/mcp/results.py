"""Turns what a tool has answered into text: bounded, and without the bytes of media."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smg.mcp.values import ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable


def tool_result(parts: Iterable[Any], structured: Any, max_bytes: int, *, is_error: bool) -> ToolResult:
    """The result of a call.

    Args:
        parts: content blocks of the SDK.
        structured: shown where there are no parts.
        max_bytes: of all text together; the rest is cut off, and said to be.
        is_error: the tool says so.
    """
    shown: list[dict[str, Any]] = []
    left = max_bytes
    for part in parts:
        block = _block(part)
        text = block.get("text")
        if text is not None:
            block["text"], left = _cut(text, left)
        shown.append(block)
    if not shown and structured is not None:
        text, _ = _cut(json.dumps(structured, ensure_ascii=False), left)
        shown.append({"type": "text", "text": text})
    text = "\n".join([block["text"] for block in shown if "text" in block])
    return ToolResult(text, _json(shown), is_error)


def failed_result(message: str) -> ToolResult:
    """A call that has brought nothing."""
    return ToolResult(message, _json([{"type": "text", "text": message}]), is_error=True)


def _block(part: Any) -> dict[str, Any]:
    kind: str = part.type
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": part.mime_type, "data": f"[{len(part.data)} characters of base64]"}
    if kind == "resource_link":
        return {"type": "text", "text": f"{part.name}: {part.uri}"}
    text = getattr(getattr(part, "resource", None), "text", None)
    return {"type": "text", "text": text} if isinstance(text, str) else {"type": kind}


def _cut(text: str, left: int) -> tuple[str, int]:
    data = text.encode("utf-8", "replace")
    if len(data) <= left:
        return text, left - len(data)
    kept = data[: max(0, left)].decode("utf-8", "ignore")
    return f"{kept}\n[cut off: {len(data) - left} more bytes]", 0


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
