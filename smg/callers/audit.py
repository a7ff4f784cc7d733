"""A log line for each call of the operator's endpoints: who, what, from where, and how it ended.

Changes are logged at level info, looks at debug, refusals at warning. Anybody can be refused as often as he likes, so
refusals have a bound of their own; what is beyond it is counted and told in the next line.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.types.context import RequestContext

logger = logging.getLogger(__name__)

MAX_REFUSALS = 10
WINDOW_S = 1.0

_LEVELS = {"success": logging.INFO, "failed": logging.INFO, "denied": logging.WARNING}


class AdminCall(NamedTuple):
    """A call that has ended.

    Attributes:
        method: HTTP method, or "GRPC".
        path: path, or full name of the gRPC method.
        client: address that it came from.
        status: HTTP status, or google.rpc.Code.
        outcome: "success", "denied" for want of a right, or "failed".
        is_read: it only looks.
    """

    method: str
    path: str
    client: str
    status: int
    outcome: str
    is_read: bool


class AuditLog:
    """Where calls of the operator's endpoints are told."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Args: now: a clock in seconds."""
        self._now = now
        self._window_end = 0.0
        self._refusals = 0
        self._untold = 0

    def record(self, call: AdminCall, context: RequestContext) -> None:
        """Tell a call."""
        if call.outcome == "denied" and not self._may_tell():
            self._untold += 1
            return
        level = logging.DEBUG if call.is_read and call.outcome == "success" else _LEVELS[call.outcome]
        caller = context.caller
        fields = {
            "principal": caller.principal or caller.tenant or "-",
            "auth_method": caller.method,
            "role": caller.role or "-",
            "method": call.method,
            "path": call.path[:200],
            "client": call.client,
            "status": call.status,
            "outcome": call.outcome,
            "request_id": context.request_id,
        }
        if self._untold:
            fields["refusals_not_told"], self._untold = self._untold, 0
        logger.log(level, "control_plane_audit", extra=fields)

    def _may_tell(self) -> bool:
        now = self._now()
        if now >= self._window_end:
            self._window_end, self._refusals = now + WINDOW_S, 0
        self._refusals += 1
        return self._refusals <= MAX_REFUSALS
