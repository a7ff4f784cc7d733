"""Who asks, and the ids under which the request is followed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a request.

    Attributes:
        tenant: name of the tenant whose key was used; empty for anonymous and shared-key callers.
        is_admin: may use the control plane.
    """

    tenant: str = ""
    is_admin: bool = False


ANONYMOUS = Caller()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What travels with a request beside its message.

    Attributes:
        request_id: id for logs and for the x-request-id header.
        caller: who asks.
        traceparent: W3C trace context as received; empty when there is none.
        routing_key: key for sticky placement; empty when there is none.
        deadline: loop time (seconds, monotonic) after which the answer is of no use; None for no limit.
    """

    request_id: str
    caller: Caller = field(default=ANONYMOUS)
    traceparent: str = ""
    routing_key: str = ""
    deadline: float | None = None
