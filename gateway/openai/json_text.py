"""Turns plain JSON values back into JSON text, whatever size their numbers have."""

from __future__ import annotations

import json
from typing import Any

import orjson


def json_text(value: Any) -> str:
    """Compact JSON text with the members in their order.

    Integers beyond 64 bits are JSON as well, and a schema may hold them; orjson does not write them.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
