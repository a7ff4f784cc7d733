"""Refuses JSON Schemas that would take very long to compile or to follow.

llguidance's time for an object grows with the square of its optional properties: 1,000 take about 0.15 seconds, and
10,000 fifteen. Nothing can stop it once it has begun, and everybody else's constraints wait. Its parser follows about
500 of them.

Alternatives that lead to alternatives, and so on, are all followed at once for each token: 40 forms of which each may be
any of the 40 take 0.1 seconds a token, 60 of 60 three (measured). llguidance's own limits are looked at afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from servicers.local.refusal import RefusalError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_OPTIONAL_PROPERTIES = 1000
"""Of one object."""
_MAX_SQUARES = 16 * MAX_OPTIONAL_PROPERTIES**2
"""Of all objects: the sum of the squares of their numbers of optional properties."""
MAX_ALTERNATIVES = 2000
"""Steps from a form to another that can be taken at one place without any output."""
_MAX_STEPS = 500_000
"""Of all places: more take too long to look at."""
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_Node = dict[str, Any]


def refuse_costly(schema: dict[str, Any]) -> None:
    """Look at every object in a schema, and at every place with alternatives.

    Raises:
        RefusalError: it has too many optional properties, or too many alternatives.
    """
    _refuse_optional(schema)
    _refuse_alternatives(schema)


def _refuse_optional(schema: _Node) -> None:
    cost = largest = 0
    for count in _optional_properties(schema):
        cost += count * count
        largest = max(largest, count)
        if count > MAX_OPTIONAL_PROPERTIES or cost > _MAX_SQUARES:
            raise RefusalError(
                f"json_schema is too large: it has an object with {largest} optional properties; allowed:"
                f" {MAX_OPTIONAL_PROPERTIES}, and in at most 16 objects; make some of them required"
            )


def _optional_properties(schema: _Node) -> Iterator[int]:
    for node in _nodes(schema):
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            names = cast("_Node", properties)
            needed = cast("list[Any]", required) if isinstance(required, list) else []
            yield len(names.keys() - {name for name in needed if isinstance(name, str)})


def _nodes(schema: _Node) -> Iterator[_Node]:
    """Every object in a schema."""
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            node = cast("_Node", value)
            waiting.extend(node.values())
            yield node


def _refuse_alternatives(schema: _Node) -> None:
    following: dict[int, list[_Node]] = {}
    for node in _nodes(schema):
        following[id(node)] = _next_forms(schema, node)
    # Forms that lead nowhere cost nothing by themselves.
    forks = {
        number: [each for each in forms if following.get(id(each))] for number, forms in following.items()
    }
    left = _MAX_STEPS
    for number, forms in forks.items():
        steps = 0
        seen, waiting = {number}, list(forms)
        while waiting:
            steps += 1
            form = id(waiting.pop())
            if form not in seen:
                seen.add(form)
                waiting.extend(forks[form])
            if steps > MAX_ALTERNATIVES or steps > left:
                raise RefusalError(
                    "json_schema is too large: at one place in it too many alternatives lead to alternatives; allowed:"
                    f" {MAX_ALTERNATIVES}; use fewer of anyOf, oneOf, allOf and $ref"
                )
        left -= steps


def _next_forms(schema: _Node, node: _Node) -> list[_Node]:
    """The forms that stand for a form, without any output between."""
    forms: list[Any] = []
    for name in _ALTERNATIVES:
        alternatives = node.get(name)
        if isinstance(alternatives, list):
            forms += cast("list[Any]", alternatives)
    forms.append(_target(schema, node.get("$ref")))
    return [cast("_Node", each) for each in forms if isinstance(each, dict)]


def _target(schema: _Node, pointer: Any) -> Any:
    """What a reference within the schema is to: JSON Pointer, RFC 6901. None for what is none."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    found: Any = schema
    for part in pointer.split("/")[1:]:
        if not isinstance(found, dict):
            return None
        found = cast("_Node", found).get(unquote(part).replace("~1", "/").replace("~0", "~"))
    return found
