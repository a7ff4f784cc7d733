"""Turns plain JSON values back into JSON text, whatever size their numbers have."""

from __future__ import annotations

import json
from typing import Any

import orjson

from smg.errors import MalformedRequest


def json_text(value: Any, name: str) -> str:
    """Compact JSON text with the members in their order.

    Args:
        value: what the body held.
        name: its place in the body, for the message.

    Raises:
        MalformedRequest: a number beyond every float is in it: it has been read as infinite, which JSON cannot say.
    """
    try:
        text = orjson.dumps(value).decode()
        # orjson writes an infinite number as null.
        if "null" in text:
            json.dumps(value, allow_nan=False)
    except TypeError:
        # Integers beyond 64 bits are JSON as well, and a schema may hold them; orjson does not write them.
        return _plain_text(value, name)
    except ValueError as error:
        raise _too_large(name) from error
    return text


def _plain_text(value: Any, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise _too_large(name) from error


def _too_large(name: str) -> MalformedRequest:
    return MalformedRequest(
        f"{name} has a number that does not fit 64 bits; allowed are finite ones", param=name
    )
