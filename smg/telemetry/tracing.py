"""Traces of requests: which trace each is part of, and what is told of it when it has ended.

A request pays for a few random bits at its start and one tuple at its end. Spans are made of that in the thread that
exports them (span_export.py), the only place that knows OpenTelemetry.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from smg.telemetry.tracecontext import TraceContext, try_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Ids must differ, nobody has to be kept from guessing one: no system call for each.
_ids = random.Random(secrets.randbits(256))  # noqa: S311 - seeded by the system, guards nothing


class TracedRequest(NamedTuple):
    """A request that has ended. Times are unix time in seconds; 0 where a phase was not reached.

    Attributes:
        context: its own place in the trace.
        parent: the caller's; None where it begins the trace.
        tracestate: as received.
        engine_span_id: place of the engine's part, under which workers record.
        request_id: the request's id.
        route: name of the route.
        tenant: of the caller; empty for others.
        status: HTTP status, or what the gRPC status corresponds to.
        model: id of the model; empty if it was not found.
        workers: addresses of the workers, one an attempt.
        failovers: attempts after the first token.
        prompt_tokens: counted by the engine.
        completion_tokens: counted here.
        arrived_at: when it was there.
        admitted_at: when it had its place.
        parsed_at: when its message was made.
        prompted_at: when it went to an engine.
        opened_at: when its first token came.
        answered_at: when the engine's part was over.
        ended_at: when all was said.
    """

    context: TraceContext
    parent: TraceContext | None
    tracestate: str
    engine_span_id: int
    request_id: str
    route: str
    tenant: str
    status: int
    model: str
    workers: Sequence[str]
    failovers: int
    prompt_tokens: int
    completion_tokens: int
    arrived_at: float
    admitted_at: float
    parsed_at: float
    prompted_at: float
    opened_at: float
    answered_at: float
    ended_at: float


class TraceQueue(Protocol):
    """Takes requests that have ended, to be exported. Called on the event loop; never waits."""

    def put(self, request: TracedRequest) -> None:
        """Take one, or drop and count it."""
        ...


class RequestTrace:
    """The trace of one request.

    Attributes:
        context: its own place in the trace.
        parent: the caller's.
        tracestate: as received.
        engine_span_id: place of the engine's part.
        queue: who exports it.
    """

    __slots__ = ("context", "engine_span_id", "parent", "queue", "tracestate")

    def __init__(
        self, context: TraceContext, parent: TraceContext | None, tracestate: str, queue: TraceQueue
    ) -> None:
        self.context = context
        self.parent = parent
        self.tracestate = tracestate
        self.engine_span_id = _span_id()
        self.queue = queue

    @property
    def outgoing(self) -> str:
        """The `traceparent` for workers: their parts lie under the engine's."""
        return self.context._replace(span_id=self.engine_span_id).header

    @property
    def trace_id(self) -> str:
        """Id of the trace, as logs have it."""
        return f"{self.context.trace_id:032x}"


class Tracing:
    """Begins traces. Whether one is recorded is the caller's decision where it has made one."""

    def __init__(self, queue: TraceQueue, sample_ratio: float) -> None:
        """Args: sample_ratio: share of the requests without a trace of the caller's that are recorded, 0 to 1."""
        self._queue = queue
        self._sample_ratio = sample_ratio

    def begin(self, traceparent: str, tracestate: str) -> RequestTrace:
        """The trace of a request that has just arrived. Args: its headers, empty for none."""
        parent = try_traceparent(traceparent) if traceparent else None
        if parent is not None:
            context = TraceContext(parent.trace_id, _span_id(), parent.is_sampled)
        else:
            tracestate = ""
            context = TraceContext(_ids.getrandbits(128) or 1, _span_id(), _ids.random() < self._sample_ratio)
        return RequestTrace(context, parent, tracestate, self._queue)


def unix_time(now: float) -> Callable[[float], float]:
    """Turns times of time.monotonic into unix time; 0 stays 0. Args: now: the time now."""
    offset = time.time() - now  # noqa: TID251 - traces of several machines meet on the wall clock
    return lambda at: at + offset if at else 0.0


def _span_id() -> int:
    return _ids.getrandbits(64) or 1
