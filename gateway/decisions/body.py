"""Reads the body of a decisions request: without its compression, its JSON apart from the images of a multipart body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic_core import from_json

from gateway.bodies.encoding import INLINE_BYTES, decoded, is_encoded
from gateway.bodies.multipart import Part, parts_of
from gateway.openai.explain import shown
from smg.errors import DecisionsRefused, MalformedRequest, UnsupportedMediaType
from smg.pipelines.off_loop import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.request import HttpRequest

MULTIPART = "multipart/form-data"


class Body(NamedTuple):
    """A body.

    Attributes:
        members: of the JSON object.
        parts: of a multipart body, all but the first.
        is_multipart: it came in parts.
        content_type: in lower case, without parameters.
    """

    members: dict[str, Any]
    parts: Sequence[Part]
    is_multipart: bool
    content_type: str


async def read_body(request: HttpRequest, max_bytes: int) -> Body:
    """Read a body; what takes long in a thread.

    Raises:
        DecisionsRefused: too long, in an unknown coding, or not of its form.
        MalformedRequest: not JSON, or no JSON object.
    """
    coding = request.header(b"content-encoding")
    if len(request.body) <= INLINE_BYTES and not is_encoded(coding):
        return _read(request, coding, max_bytes)
    return await in_thread(_read, request, coding, max_bytes)


def _read(request: HttpRequest, coding: str, max_bytes: int) -> Body:
    declared = request.header(b"content-type")
    content_type = declared.split(";", 1)[0].strip().lower()
    data = decoded(request.body, coding, max_bytes)
    if content_type != MULTIPART:
        return Body(_object(data), (), False, content_type)
    first, *others = parts_of(data, declared) or [Part("", "", b"")]
    if first.name != "request":
        raise DecisionsRefused("the first part of a multipart body must be named request", param="request")
    return Body(_object(first.data), others, True, content_type)


def is_json(content_type: str) -> bool:
    """Whether a content type says JSON."""
    return content_type == "application/json" or (
        content_type.startswith("application/") and content_type.endswith("+json")
    )


def refuse_other_type(body: Body) -> None:
    """Refuse what is neither JSON nor multipart.

    Raises:
        UnsupportedMediaType: it is declared as something else.
    """
    if not body.is_multipart and not is_json(body.content_type):
        said = repr(body.content_type[:60]) if body.content_type else "missing"
        raise UnsupportedMediaType(
            f"Content-Type is {said}; it must be application/json or {MULTIPART}", param="Content-Type"
        )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value: Any = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise MalformedRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedRequest(f"the body is {shown(value)}; it must be a JSON object")
    return cast("dict[str, Any]", value)
