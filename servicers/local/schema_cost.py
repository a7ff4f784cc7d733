"""Refuses JSON Schemas that would take very long to compile.

llguidance's time for an object grows with the square of its optional properties: 1,000 take about 0.15 seconds, and
10,000 fifteen. Nothing can stop it once it has begun, and everybody else's constraints wait. Its parser follows about
500 of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from servicers.local.refusal import RefusalError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_OPTIONAL_PROPERTIES = 1000
"""Of one object."""
_MAX_SQUARES = 16 * MAX_OPTIONAL_PROPERTIES**2
"""Of all objects: the sum of the squares of their numbers of optional properties."""


def refuse_costly(schema: dict[str, Any]) -> None:
    """Look at every object in a schema.

    Raises:
        RefusalError: it has too many optional properties.
    """
    cost = largest = 0
    for count in _optional_properties(schema):
        cost += count * count
        largest = max(largest, count)
        if count > MAX_OPTIONAL_PROPERTIES or cost > _MAX_SQUARES:
            raise RefusalError(
                f"json_schema is too large: it has an object with {largest} optional properties; allowed:"
                f" {MAX_OPTIONAL_PROPERTIES}, and in at most 16 objects; make some of them required"
            )


def _optional_properties(schema: dict[str, Any]) -> Iterator[int]:
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            node = cast("dict[str, Any]", value)
            waiting.extend(node.values())
            properties, required = node.get("properties"), node.get("required")
            if isinstance(properties, dict):
                names = cast("dict[str, Any]", properties)
                needed = cast("list[Any]", required) if isinstance(required, list) else []
                yield len(names.keys() - {name for name in needed if isinstance(name, str)})
