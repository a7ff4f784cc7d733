"""Says what is wrong with the shape of a body: where, what was expected, what was found. Short, whatever was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_SHOWN = 60
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a number that fits 64 bits",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
}


def explain(error: ValidationError, data: dict[str, Any]) -> tuple[str, str]:
    """The first member at fault, and a sentence about it.

    A member that may be of several types has one error for each; those that lead deepest into it are about the type
    that was meant.
    """
    details = error.errors(include_url=False, include_context=False)
    member = details[0]["loc"][0]
    others = {detail["loc"][0] for detail in details} - {member}
    located = [(_place(detail, data), detail) for detail in details if detail["loc"][0] == member]
    path = max((path for path, _ in located), key=_depth)
    at_path = [detail for found, detail in located if found == path]
    name = _spelled(path)
    more = f"; and {len(others)} more" if others else ""
    if at_path[0]["type"] == "missing":
        return name, f"{name} is missing; it is required{more}"
    expected = " or ".join(dict.fromkeys(_expected(detail) for detail in at_path))
    return name, f"{name} is {shown(at_path[0]['input'])}; it must be {expected}{more}"


def shown(value: Any) -> str:
    """A JSON value in a message: in full when it is short, else cut or named by its kind."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value) if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]!r}…"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _place(detail: ErrorDetails, data: dict[str, Any]) -> tuple[int | str, ...]:
    """Path in the body. Locations also hold the names of a union's types, which are no members of anything."""
    node: Any = data
    path: list[int | str] = []
    last = len(detail["loc"]) - 1
    for number, part in enumerate(detail["loc"]):
        if isinstance(part, int):
            items: list[Any] = cast("list[Any]", node)
            node = items[part]
        elif isinstance(node, dict) and part in node:
            node = cast("dict[str, Any]", node)[part]
        elif number < last or detail["type"] != "missing":
            continue
        path.append(part)
    return tuple(path)


def _depth(path: tuple[int | str, ...]) -> tuple[int, int]:
    return len(path), path[-1] if isinstance(path[-1], int) else 0


def _spelled(path: tuple[int | str, ...]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part[:MAX_SHOWN]}" if text else part
    return text


def _expected(detail: ErrorDetails) -> str:
    return _EXPECTED.get(detail["type"], detail["msg"].removeprefix("Input should be "))
