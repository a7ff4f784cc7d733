"""Rules for JSON that travels as text, and how a value of a client's stands in a message."""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from pydantic_core import from_json

Fault = tuple[str, str]
MAX_SHOWN = 40
MAX_LISTED = 10
# A float's digits or exponent must be long for it to be infinite. The first look is cheap, and mostly enough.
_LONG_NUMBER = re.compile(r"[0-9][0-9][0-9]")
_MAYBE_INFINITE = re.compile(r"(?<!\d)\d{300}|[eE]\+?0*\d{3}")


def shown(text: str) -> str:
    """A client's text in a message: quoted, and short."""
    return repr(text) if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]!r}…"


def listed(names: set[str]) -> str:
    """A few of a client's names in a message."""
    few = sorted(names)[:MAX_LISTED]
    more = f" and {len(names) - len(few)} more" if len(names) > len(few) else ""
    return ", ".join(shown(name) for name in few) + more


def read_object(text: str, name: str) -> tuple[dict[str, Any], list[Fault]]:
    """Read text that must be one JSON object, as RFC 8259 has it, nested at most 200 deep, with finite numbers.

    Returns: the object, and what is wrong; the object is empty if something is.
    """
    try:
        value: Any = from_json(text, allow_inf_nan=False)
        if _LONG_NUMBER.search(text) and _MAYBE_INFINITE.search(text):
            json.loads(text, parse_float=_finite)
    except ValueError as error:
        return {}, [(name, f"{name} is not JSON: {error}")]
    if not isinstance(value, dict):
        return {}, [(name, f"{name} is {_kind(value)}; it must be a JSON object")]
    return cast("dict[str, Any]", value), []


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        msg = f"the number {digits[:MAX_SHOWN]} does not fit 64 bits"
        raise ValueError(msg)
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"
