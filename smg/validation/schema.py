"""Finds JSON Schemas that no finite value can match, because they refer to themselves and never end.

Engines turn a schema into a grammar: one without an end makes output until the context is full, or none at all. Only
certain faults are found; whatever this module does not understand is the engine's to judge.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from smg.validation.texts import read_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smg.validation.texts import Fault

MAX_SCHEMA_CHARS = 1 << 20
# Bounds of the search: each pass finds the ends one reference further away. A schema that needs more is taken.
_MAX_PASSES = 16
_MAX_NODES = 4000
_INDEX_DIGITS = 6
# Keywords whose values are values, not schemas.
_VALUES = frozenset(("const", "enum", "default", "examples"))
Node = dict[str, Any]


def schema_faults(text: str, name: str) -> list[Fault]:
    """Check the JSON text of a schema: an object, not too long, and possible to match with something finite."""
    if len(text) > MAX_SCHEMA_CHARS:
        return [(name, f"{name} has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are allowed")]
    schema, faults = read_object(text, name)
    if not faults and '"$ref"' in text and is_endless(schema):
        faults.append(
            (
                name,
                f"{name} refers to itself without an end: nothing finite matches it; give it a branch that ends",
            )
        )
    return faults


def is_endless(schema: Node) -> bool:
    """True if no finite value matches the schema, or some reference in it leads only to references."""
    nodes = list(islice(_nodes(schema), _MAX_NODES + 1))
    if len(nodes) > _MAX_NODES:
        return False
    targets = {id(node): _target(schema, node["$ref"]) for node in nodes if "$ref" in node}
    if _has_loop(targets):
        return True
    # Nodes come before what is in them; backwards, one pass does all but the references.
    nodes.reverse()
    pending = {id(node) for node in nodes}
    for _ in range(_MAX_PASSES):
        before = len(pending)
        for node in nodes:
            if id(node) in pending and _ends(node, targets.get(id(node)), pending):
                pending.remove(id(node))
        if id(schema) not in pending:
            return False
        if len(pending) == before:
            return True
    return False


def _nodes(schema: Node) -> Iterator[Node]:
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            node = cast("Node", value)
            yield node
            waiting.extend(value for key, value in node.items() if key not in _VALUES)
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))


def _has_loop(targets: dict[int, Node | None]) -> bool:
    """True if some reference leads to references without end. Values beside a reference do not help it."""
    done: set[int] = set()
    for start in targets:
        current: int | None = start
        seen: set[int] = set()
        while current is not None and current in targets and current not in done:
            if current in seen:
                return True
            seen.add(current)
            target = targets[current]
            current = None if target is None else id(target)
        done |= seen
    return False


def _target(schema: Node, reference: Any) -> Node | None:
    """What a reference into the schema itself names; None for any other."""
    # "#" is the whole; "#/a/0" a path; "#name" an anchor, which is left to the engine.
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    current: Any = schema
    for step in unquote(reference).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(current, dict):
            current = cast("Node", current).get(key)
        elif isinstance(current, list) and key.isdecimal() and len(key) <= _INDEX_DIGITS:
            current = next(iter(cast("list[Any]", current)[int(key) :][:1]), None)
        else:
            return None
    return cast("Node", current) if isinstance(current, dict) else None


def _ends(node: Node, target: Node | None, pending: set[int]) -> bool:
    """True if something finite may match the node.

    Args:
        node: the node.
        target: what it refers to, if to something in the schema.
        pending: the nodes that are not known to have an end.
    """

    def ends(child: Any) -> bool:
        return id(child) not in pending

    if "const" in node or "enum" in node:
        return True
    if target is not None and not ends(target):
        return False
    if not all(ends(child) for child in _items(node.get("allOf"))):
        return False
    for key in ("anyOf", "oneOf"):
        branches = _items(node.get(key))
        if branches and not any(ends(branch) for branch in branches):
            return False
    return all(ends(child) for child in _needed(node))


def _needed(node: Node) -> list[Any]:
    """Schemas of the values that every match of the node holds."""
    kind = node.get("type")
    if kind in ("object", ["object"]):
        properties: Any = node.get("properties")
        if isinstance(properties, dict):
            known = cast("Node", properties)
            required = _items(node.get("required"))
            return [known[name] for name in required if isinstance(name, str) and name in known]
    if kind in ("array", ["array"]):
        least = node.get("minItems")
        if isinstance(least, int) and least > 0:
            first = _items(node.get("prefixItems"))[:least]
            return first if len(first) == least else [*first, node.get("items")]
    return []


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
