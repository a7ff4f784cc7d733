"""Who calls, and the ids of the call: read from gRPC metadata once, before the message is read.

gRPC runs interceptors and handler of a call in one context of their own, so what the interceptor sets is seen by the
handler of the same call and by nobody else.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from smg.policies.hints import asks_for_reason, first_routing_key, parse_target_worker
from smg.telemetry.tracecontext import usable_traceparent, usable_tracestate
from smg.types.context import PlacementNote, RequestContext, is_usable_id, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smg.pipelines.meter import Meters, RequestMeter

REQUEST_ID = "x-request-id"
ROUTED_WORKER = "x-smg-routed-worker-id"
ROUTING_REASON = "x-smg-routing-reason"

CONTEXT: ContextVar[RequestContext] = ContextVar("CONTEXT")
# When its message was here, by time.monotonic.
ARRIVED_AT: ContextVar[float] = ContextVar("ARRIVED_AT", default=0.0)
# What is measured of the call; None for calls that ask no model.
METER: ContextVar[RequestMeter | None] = ContextVar("METER", default=None)


def metadata_map(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Metadata by name; of several with one name the first counts. Binary values are left out."""
    result: dict[str, str] = {}
    for name, value in metadata or ():
        if isinstance(value, str):
            result.setdefault(name, value)
    return result


def request_context(
    metadata: dict[str, str],
    id_keys: Sequence[str],
    id_prefix: str,
    routing_keys: Sequence[str] = ("x-smg-routing-key",),
) -> RequestContext:
    """Ids of a call: the client's own where a key has a usable one, else new. The caller is not known yet."""
    request_id = next((metadata[key] for key in id_keys if is_usable_id(metadata.get(key, ""))), "")
    return RequestContext(
        request_id=request_id or new_id(id_prefix),
        is_client_id=bool(request_id),
        id_prefix=id_prefix,
        traceparent=usable_traceparent(metadata.get("traceparent", "")),
        tracestate=usable_tracestate(metadata.get("tracestate", "")),
        routing_key=first_routing_key(map(metadata.get, routing_keys)),
        target_worker=parse_target_worker(metadata.get("x-smg-target-worker")),
        routing_tokens=metadata.get("x-smg-routing-tokens", ""),
        note=PlacementNote() if asks_for_reason(metadata.get("x-smg-explain-routing")) else None,
    )


def start_meter(meters: Meters, route: str) -> RequestMeter:
    """Measure the call: it has just arrived on a route of the table."""
    meter = meters.start(route, CONTEXT.get(), ARRIVED_AT.get())
    METER.set(meter)
    return meter
