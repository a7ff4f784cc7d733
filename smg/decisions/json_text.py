"""Writes JSON as decisions have it: compact, keys in their order, nothing escaped that need not be, any whole number."""

from __future__ import annotations

import json

import orjson


def json_bytes(value: object) -> bytes:
    """A value as JSON text in UTF-8. What orjson does not write is numbers beyond 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
