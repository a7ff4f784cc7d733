"""Finds the places in a JSON Schema that a compiler's message is about: llguidance names what it refuses, not where.

Source of the messages: llguidance's JSON Schema compiler. A message of another kind has no places.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PLACES = 3
_MAX_NODES = 10_000
# Keywords whose values are values, not schemas; and those whose members have names of the schema's own.
_VALUES = frozenset(("const", "enum", "default", "examples"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_KEYWORDS = re.compile(r"Unimplemented keys: (\[.*\])")
_SPELLED = re.compile(r"(oneOf) constraints are not supported|for '([^']+)'")
_VALUE_OF = (
    (re.compile(r"Unknown format: (.*)"), "format"),
    (re.compile(r"Invalid type: (.*)"), "type"),
    (re.compile(r"regex parse error:\n {4}(.*)\n"), "pattern"),
)
Place = tuple[str, str, Any]


def places_of(schema: Any, message: str) -> list[str]:
    """JSON Pointers (RFC 6901), each behind a #, of the keywords that a message is about; at most MAX_PLACES."""
    wanted, value = _subject(message)
    found = (
        f"{pointer}/{_escaped(keyword)}"
        for pointer, keyword, held in islice(_keywords(schema), _MAX_NODES)
        if keyword in wanted and (value is None or held == value)
    )
    return list(islice(found, MAX_PLACES))


def _subject(message: str) -> tuple[frozenset[str], str | None]:
    """The keywords that a message names, and the value that they have where it is the value that is refused."""
    if match := _KEYWORDS.search(message):
        return frozenset(cast("list[str]", json.loads(match[1]))), None
    if match := _SPELLED.search(message):
        return frozenset((match[1] or match[2],)), None
    for pattern, keyword in _VALUE_OF:
        if match := pattern.search(message):
            return frozenset((keyword,)), match[1]
    return frozenset(), None


def _keywords(schema: Any) -> Iterator[Place]:
    """Every keyword of a schema and of those in it: pointer of its schema, name, value."""
    waiting: list[tuple[str, Any, bool]] = [("#", schema, False)]
    while waiting:
        pointer, node, has_names = waiting.pop()
        if isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            if not has_names:
                yield from ((pointer, keyword, value) for keyword, value in members.items())
            inner = [
                (f"{pointer}/{_escaped(key)}", value, not has_names and key in _NAMED)
                for key, value in members.items()
                if has_names or key not in _VALUES
            ]
        elif isinstance(node, list):
            inner = [
                (f"{pointer}/{index}", value, False) for index, value in enumerate(cast("list[Any]", node))
            ]
        else:
            continue
        waiting.extend(reversed(inner))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
