"""Turns the bytes of a request body into a checked shape; every fault is a json_parse_error that says where.

JSON as RFC 8259 has it: no NaN, no lone surrogates, UTF-8 only; nested at most 200 deep. A member of the body that
stands twice is refused: which of the two counts differs between readers, and a proxy before us may have read the other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
from pydantic import ValidationError
from pydantic_core import from_json

from gateway.openai.explain import explain, shown
from gateway.openai.shapes import ChatShape, CompletionShape
from gateway.openai.weight import refuse_heavy
from gateway.responses.shapes import ResponseShape
from smg.errors import MalformedRequest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from gateway.request import HttpRequest

ShapeT = TypeVar("ShapeT")
# Shorter bodies hold few values.
HEAVY_BODY_BYTES = 128 * 1024
# Above this, writing JSON is faster than looking for a few names in it.
LONG_BODY_BYTES = 4096
_QUOTED = {
    name: f'"{name}"'.encode()
    for shape in (ChatShape, CompletionShape, ResponseShape)
    for name in shape.__annotations__
}


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
            f"Content-Type is {shown(content_type) if content_type else 'missing'}; it must be application/json",
            param="Content-Type",
        )
    if len(request.body) > HEAVY_BODY_BYTES:
        refuse_heavy(request.body)
    try:
        data: Any = from_json(request.body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise MalformedRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        kind = shown(data) if isinstance(data, list) else _kind(cast("object", data))
        raise MalformedRequest(f"the body is {kind}; it must be a JSON object")
    body = cast("dict[str, Any]", data)
    _refuse_repeated(request.body, body)
    try:
        return shape.validate_python(body), body
    except ValidationError as error:
        param, message = explain(error, body)
        raise MalformedRequest(message, param=param) from error


def _refuse_repeated(body: bytes, data: dict[str, Any]) -> None:
    """Refuse a body with one of our members twice. The reader keeps the last and does not tell."""
    if len(body) > LONG_BODY_BYTES and _is_as_written(body, data):
        return
    for name in data:
        quoted = _QUOTED.get(name)
        if quoted is not None and body.count(quoted) > 1:
            break
    else:
        return
    # The name stands in the body twice, here or deeper, as a member or as a text: only a slow look tells.
    seen: set[str] = set()
    for name, _ in _members(body):
        if name in seen and name in _QUOTED:
            raise MalformedRequest(f"{name} is in the body twice; it may be there once", param=name)
        seen.add(name)


def _is_as_written(body: bytes, data: dict[str, Any]) -> bool:
    """True if the body, read and written again, is the same: as most clients write it. Then nothing got lost."""
    try:
        return orjson.dumps(data) == body
    except TypeError:
        return False


def _members(body: bytes) -> list[tuple[str, Any]]:
    """The members of the outermost object, repeated ones too."""
    found: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Objects are told from the inside out.
        found[:] = pairs
        return dict(pairs)

    json.loads(body, object_pairs_hook=keep)
    return found


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"
