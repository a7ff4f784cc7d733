"""Turns the bytes of a request body into a checked shape; every fault is a json_parse_error that says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import from_json

from smg.errors import MalformedRequest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from gateway.request import HttpRequest

ShapeT = TypeVar("ShapeT")


def parse_body(request: HttpRequest, shape: TypeAdapter[ShapeT]) -> tuple[ShapeT, dict[str, Any]]:
    """The body as a shape, and as the plain object it was.

    Raises:
        MalformedRequest: not declared as JSON, not JSON, or of another shape.
    """
    content_type = request.header(b"content-type").split(";", 1)[0].strip().lower()
    if content_type != "application/json" and not (
        content_type.startswith("application/") and content_type.endswith("+json")
    ):
        raise MalformedRequest(
            f"Content-Type is {content_type or 'missing'!r}; it must be application/json",
            param="Content-Type",
        )
    try:
        data: Any = from_json(request.body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise MalformedRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise MalformedRequest(f"the body is a JSON {_kind(cast('object', data))}; it must be an object")
    try:
        return shape.validate_python(data), cast("dict[str, Any]", data)
    except ValidationError as error:
        raise MalformedRequest(*_explain(error)) from error


def _explain(error: ValidationError) -> tuple[str]:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ""
    for part in first["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    found = "" if first["type"] == "missing" else f" (found: {_shown(first['input'])})"
    more = error.error_count() - 1
    return (f"{place}: {first['msg']}{found}" + (f"; and {more} more" if more else ""),)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "number"
