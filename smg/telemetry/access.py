"""The access log: one line per request, when it has ended, of names and numbers alone.

No header, no key, no text of a prompt or an answer is ever told. The path is, where it is none of ours, so that an
operator finds out what is asked for in vain; its query is not.
"""

from __future__ import annotations

import logging
from typing import Any

ACCESS = "smg.access"
logger = logging.getLogger(ACCESS)

_MAX_PATH_CHARS = 200


def log_http(
    method: str,
    route: str | None,
    path: str,
    status: int,
    duration_s: float,
    request_id: str,
    tenant: str,
    measured: dict[str, Any],
) -> None:
    """Tell of an HTTP request.

    Args:
        method: as sent; only what HTTP's parser lets through.
        route: name in the route table; None for a path that is none of ours.
        path: as sent, without the query.
        status: 499 for a client that left.
        duration_s: from its first byte to the end of its answer.
        request_id: the request's.
        tenant: of the caller; empty for others.
        measured: further fields.
    """
    fields: dict[str, Any] = {"request_id": request_id, "method": method, "route": route or "unknown"}
    if route is None:
        fields["path"] = path[:_MAX_PATH_CHARS]
    fields["status"] = status
    _log(fields, duration_s, tenant, measured)


def log_grpc(
    method: str,
    route: str,
    code: int,
    duration_s: float,
    request_id: str,
    tenant: str,
    measured: dict[str, Any],
) -> None:
    """Tell of a gRPC call. Args: method is one of ours in full; code a google.rpc.Code. Else as log_http."""
    fields: dict[str, Any] = {"request_id": request_id, "method": method, "route": route, "code": code}
    _log(fields, duration_s, tenant, measured)


def _log(fields: dict[str, Any], duration_s: float, tenant: str, measured: dict[str, Any]) -> None:
    fields["duration_ms"] = round(duration_s * 1000, 1)
    if tenant:
        fields["tenant"] = tenant
    fields.update(measured)
    logger.info("request", extra=fields)
