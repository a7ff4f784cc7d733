"""Tells which JSON types an argument may have, from the JSON Schema of the function's parameters.

What the schema says in another way than with type, enum, const, anyOf, oneOf, allOf, $ref to a place in itself,
properties and items is not looked at: the types are unknown then, which is an empty set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from smg.parsers.tools.base import ToolSchema

UNKNOWN: frozenset[str] = frozenset()
STRING = frozenset(("string",))

_MAX_DEPTH = 32


class ArgumentTypes:
    """Of one function."""

    __slots__ = ("_root", "_schema")

    def __init__(self, root: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> None:
        """Take the schema of the arguments object; schema, of a value inside of it, where that is meant."""
        self._root = root
        self._schema = self._followed(root if schema is None else schema)

    def of(self, key: str) -> frozenset[str]:
        """Names of the types as JSON Schema has them; empty where they are unknown."""
        return self._types(self._property(key), set(), 0)

    def inside(self, key: str) -> ArgumentTypes:
        """Of the values in an argument that is an object; of an array's too, whatever their key."""
        schema = self._followed(_mapping(self._property(key)))
        items = schema.get("items")
        inner = schema if items is None else {"additionalProperties": items}
        return ArgumentTypes(self._root, inner)

    def _property(self, key: str) -> Any:
        known = _mapping(self._schema.get("properties"))
        return known[key] if key in known else self._schema.get("additionalProperties")

    def _types(self, schema: Any, seen: set[str], depth: int) -> frozenset[str]:
        """Args: seen, the references followed so far: each is followed once, so the work is bounded by the schema."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return UNKNOWN
        fields = cast("dict[str, Any]", schema)
        declared = fields.get("type")
        if isinstance(declared, str):
            return frozenset((declared,))
        if isinstance(declared, list):
            return frozenset(name for name in cast("list[Any]", declared) if isinstance(name, str))
        values = [fields["const"]] if "const" in fields else fields.get("enum")
        if isinstance(values, list) and values:
            return frozenset(map(_type_of, cast("list[Any]", values)))
        reference = fields.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            return self._types(self._target(reference), seen, depth + 1)
        return self._of_parts(fields, seen, depth)

    def _of_parts(self, fields: Mapping[str, Any], seen: set[str], depth: int) -> frozenset[str]:
        for keyword in ("anyOf", "oneOf"):
            if isinstance(fields.get(keyword), list):
                found = [self._types(each, seen, depth + 1) for each in fields[keyword]]
                return UNKNOWN.union(*found) if all(found) else UNKNOWN
        if isinstance(fields.get("allOf"), list):
            found = [self._types(each, seen, depth + 1) for each in fields["allOf"]]
            return next(filter(None, found), UNKNOWN)
        for keyword, name in (("properties", "object"), ("items", "array")):
            if keyword in fields:
                return frozenset((name,))
        return UNKNOWN

    def _followed(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = schema.get("$ref")
        return _mapping(self._target(reference)) if isinstance(reference, str) else schema

    def _target(self, reference: str) -> Any:
        place: Any = self._root
        for step in reference.removeprefix("#/").split("/"):
            place = _mapping(place).get(step.replace("~1", "/").replace("~0", "~"))
        return place


def types_of(tools: Iterable[ToolSchema], name: str) -> ArgumentTypes:
    """The types of a function's arguments; all unknown for one that is not among the tools."""
    nothing: Mapping[str, Any] = {}
    return ArgumentTypes(next((tool.parameters for tool in tools if tool.name == name), nothing))


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "number"
    return "object" if isinstance(value, dict) else "array"


def fits(value_type: str, allowed: Sequence[str] | frozenset[str]) -> bool:
    """Whether a value of this type may stand there; an integer is a number."""
    return value_type in allowed or (value_type == "number" and "integer" in allowed)
