"""Turns the error tree into HTTP answers, in the two shapes that the OpenAI-compatible API has.

Shape and rule faults: {"error": {"message", "type": "invalid_request_error", "code"}}, the code being
"json_parse_error" or the number 400. Everything else: {"error": {"type": reason phrase, "code", "message",
"param"}}, with the code repeated in the X-SMG-Error-Code header. An unknown API key gets no body; what the control
plane refuses is told in plain text. `param` is null by the API's definition; the message names the field, and gRPC
callers find it in ApiError.param.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from smg.errors import ControlPlaneDenied, ControlPlaneUnauthenticated, InvalidRequest, Unauthenticated

if TYPE_CHECKING:
    from gateway.reply import Header
    from smg.errors import SmgError

JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
_CONTROL_PLANE: Header = (b"www-authenticate", b'Bearer realm="control-plane"')


def error_answer(error: SmgError) -> tuple[int, list[Header], bytes]:
    """Status, headers and body of an error."""
    status = error.status
    if isinstance(error, ControlPlaneUnauthenticated):
        return status, [_TEXT, _CONTROL_PLANE], error.message.encode()
    if isinstance(error, ControlPlaneDenied):
        return status, [_TEXT], error.message.encode()
    if isinstance(error, Unauthenticated):
        return status, [], b""
    headers: list[Header] = [JSON]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if isinstance(error, InvalidRequest) and error.is_validation:
        code: int | str = 400 if error.code == "400" else error.code
        body: dict[str, Any] = {"message": error.message, "type": error.type, "code": code}
    else:
        headers.append((b"x-smg-error-code", error.code.encode()))
        body = {"type": error.type, "code": error.code, "message": error.message, "param": None}
    return status, headers, orjson.dumps({"error": body})


def stream_error(error: SmgError, kind: str = "internal_error") -> bytes:
    """The data of the event that ends a stream which had already begun. Text completions have a kind of their own."""
    return orjson.dumps({"error": {"message": error.message, "type": kind}})
