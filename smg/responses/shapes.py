"""Looks at JSON that a client sent: whether members are there and of the right type. Faults are json_parse_errors.

Items, tools and formats are of many kinds that both fronts take as JSON; they are looked at here, once for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson

from smg.errors import MalformedRequest
from smg.validation.texts import MAX_SHOWN, listed, shown

if TYPE_CHECKING:
    from collections.abc import Collection

Json = dict[str, Any]
ValueT = TypeVar("ValueT")
_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    list: "an array",
    dict: "an object",
}


def kind_of(value: Any) -> str:
    """A client's value in a message: in full when it is short, else by its kind."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)[:MAX_SHOWN]


def optional(item: Json, name: str, where: str, kind: type[ValueT]) -> ValueT | None:
    """A member that may be left out or null.

    Raises:
        MalformedRequest: it is of another type.
    """
    value: Any = item.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        place = f"{where}.{name}"
        raise MalformedRequest(f"{place} is {kind_of(value)}; it must be {_KINDS[kind]}", param=place)
    return value


def required(item: Json, name: str, where: str, kind: type[ValueT]) -> ValueT:
    """A member that must be there. Raises as optional()."""
    value = optional(item, name, where, kind)
    if value is None:
        place = f"{where}.{name}"
        raise MalformedRequest(f"{place} is missing; it is required and must be {_KINDS[kind]}", param=place)
    return value


def one_of(value: str, allowed: Collection[str], where: str) -> str:
    """A word of a list.

    Raises:
        MalformedRequest: it is another one.
    """
    if value not in allowed:
        raise MalformedRequest(
            f"{where} is {shown(value)}; allowed are {', '.join(sorted(allowed))}", param=where
        )
    return value


def objects(value: Any, where: str) -> list[Json]:
    """A list that must hold nothing but objects.

    Raises:
        MalformedRequest: it is something else.
    """
    if not isinstance(value, list):
        raise MalformedRequest(f"{where} is {kind_of(value)}; it must be an array", param=where)
    entries = cast("list[Any]", value)
    return [as_object(entry, f"{where}[{number}]") for number, entry in enumerate(entries)]


def as_object(value: Any, where: str) -> Json:
    """A value that must be an object.

    Raises:
        MalformedRequest: it is something else.
    """
    if not isinstance(value, dict):
        raise MalformedRequest(f"{where} is {kind_of(value)}; it must be an object", param=where)
    return cast("Json", value)


def texts(value: Any, where: str) -> list[str]:
    """A list that must hold nothing but strings.

    Raises:
        MalformedRequest: it holds something else.
    """
    if not isinstance(value, list):
        raise MalformedRequest(f"{where} is {kind_of(value)}; it must be an array of strings", param=where)
    entries = cast("list[Any]", value)
    for number, entry in enumerate(entries):
        if not isinstance(entry, str):
            place = f"{where}[{number}]"
            raise MalformedRequest(f"{place} is {kind_of(entry)}; it must be a string", param=place)
    return entries


def json_of(text: str, where: str) -> Any:
    """Read JSON that travels as text.

    Raises:
        MalformedRequest: it is none.
    """
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise MalformedRequest(f"{where} is not JSON: {error}", param=where) from error


def names_of(names: Collection[str]) -> str:
    """Names that there are, in a message."""
    return listed(set(names)) or "none"
