"""Answers what never became a request: no HTTP, a head too long, or one that did not arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import error_answer
from gateway.head import CLOSE, answer_head, header_lines
from smg.telemetry.access import log_http
from smg.types.context import new_id

if TYPE_CHECKING:
    from gateway.app import GatewayApp
    from smg.errors import SmgError


def refusal(app: GatewayApp, error: SmgError) -> bytes:
    """The whole answer, after which the connection is closed. Counted and logged as that of any request."""
    status, headers, body = error_answer(error)
    request_id = new_id("req")
    headers += [(b"content-length", b"%d" % len(body)), (b"x-request-id", request_id.encode())]
    app.observer.http_response("unknown", status)
    app.observer.error_answered("unknown", error.code)
    if app.limits.access_log:
        log_http("", None, "", status, 0.0, request_id, "", {})
    return answer_head(status, header_lines(headers), CLOSE) + body
