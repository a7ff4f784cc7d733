"""Measures requests: one meter each, from arrival to end, into the router's metrics.

A meter takes the time where a request goes from one phase to the next, never per token. Metrics, the Server-Timing
header, the access log and traces are all made from these few numbers.
"""

from __future__ import annotations

import asyncio
import time
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self

from smg.errors import SmgError
from smg.telemetry.metrics import RequestResult
from smg.telemetry.server_timing import timing_of_answer, timing_of_error, timing_of_stream
from smg.telemetry.tracing import TracedRequest, unix_time
from smg.types.context import NO_TRACE, TraceHeaders

if TYPE_CHECKING:
    from types import TracebackType

    from smg.pipelines.sinks import UsageCounter
    from smg.telemetry.metrics import Outcome, RouterMetrics
    from smg.telemetry.series import RequestSeries
    from smg.telemetry.tracing import RequestTrace, Tracing
    from smg.types.context import RequestContext


class Measured(Protocol):
    """What a meter reads of an answer when it has ended.

    Attributes:
        usage: its token counts.
        error: what it ended with after it was opened; None while all is well.
        worker_urls: addresses of the workers that it was given to, in order.
        failovers: times that it went on elsewhere after its first token.
    """

    usage: UsageCounter
    error: SmgError | None
    worker_urls: list[str]
    failovers: int

    @property
    def is_open(self) -> bool:
        """Its first event has arrived."""
        ...

    @property
    def opened_at(self) -> float:
        """Loop time of that."""
        ...


class Meters:
    """Starts meters."""

    def __init__(self, metrics: RouterMetrics, tracing: Tracing | None = None) -> None:
        """Args: tracing is None where no traces are made."""
        self._metrics = metrics
        self._tracing = tracing

    def start(self, route: str, context: RequestContext, arrived_at: float = 0.0) -> RequestMeter:
        """A meter for a request that has its place among the running ones.

        Args:
            route: name of the route in the table.
            context: the request's.
            arrived_at: when it was here as a whole, by time.monotonic; 0 for now.
        """
        meter = RequestMeter(self._metrics, route, context, arrived_at)
        if self._tracing is not None:
            meter.trace = trace = self._tracing.begin(context.traceparent, context.tracestate)
            meter.trace_headers = TraceHeaders(trace.outgoing, trace.tracestate)
        return meter


class RequestMeter:
    """Measures one request: in a `with` body, from its arrival to the end of the body, what its answer counts.

    Times are those of time.monotonic, in seconds; 0 where a phase was not reached. The event loop's own clock begins at
    the same moment, and has but milliseconds (uvloop).

    Attributes:
        created: unix time of its arrival, in whole seconds; what answers carry as `created`.
        route: name of the route that it arrived on.
        arrived_at: when it was there as a whole.
        admitted_at: when it had its place among the running requests.
        parsed_at: when its message was made.
        prompted_at: when its prompt was made and it went to an engine.
        ended_at: when its answer had ended.
        model: id of its model; empty until that is known.
        trace_headers: W3C trace context for the engine.
        trace: its trace; None where no traces are made.
    """

    __slots__ = (
        "created", "route", "arrived_at", "admitted_at", "parsed_at", "prompted_at", "ended_at", "model",
        "trace_headers", "trace", "_context", "_metrics", "_series", "_answer",
    )  # fmt: skip

    def __init__(
        self, metrics: RouterMetrics, route: str, context: RequestContext, arrived_at: float
    ) -> None:
        self.created = int(time.time())  # noqa: TID251 - the one wall clock that clients see
        self.route = route
        self._context = context
        self._metrics = metrics
        self.admitted_at = self.parsed_at = monotonic()
        self.arrived_at = arrived_at or self.admitted_at
        self.prompted_at = self.ended_at = 0.0
        self.model = ""
        parent = context.traceparent
        # Without the one, the other means nothing.
        self.trace_headers = TraceHeaders(parent, context.tracestate) if parent else NO_TRACE
        self.trace: RequestTrace | None = None
        self._series: RequestSeries
        self._answer: Measured | None = None

    def parsed(self) -> None:
        """The message is made."""
        self.parsed_at = monotonic()

    def measure(self, model: str, answer: Measured) -> Self:
        """Measure the answer of a request whose model is known, while the `with` body runs."""
        self.prompted_at = monotonic()
        self.model = model
        self._series = self._metrics.request_started(self.route, model)
        self._answer = answer
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        answer, arrived_at = self._answer, self.arrived_at
        assert answer is not None  # noqa: S101 - measure() has set it
        usage = answer.usage
        error = error or answer.error
        ended_at = self.ended_at = monotonic()
        result = RequestResult(
            "ok" if error is None else _outcome(error),
            ended_at - arrived_at,
            answer.opened_at - arrived_at if answer.is_open else None,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens,
            self.admitted_at - arrived_at,
            self.prompted_at - self.parsed_at,
            answer.worker_urls,
            answer.failovers,
        )
        self._metrics.request_finished(self._series, result)

    @property
    def opened_at(self) -> float:
        """When the first event of the answer came; 0 before."""
        return self._answer.opened_at if self._answer is not None else 0.0

    def server_timing(self, *, is_whole: bool) -> bytes:
        """The value of a Server-Timing header (W3C Server Timing), in milliseconds: the phases that are over.

        Args:
            is_whole: the answer is complete; else its first event is here, or not even that.
        """
        times = (self.arrived_at, self.admitted_at, self.parsed_at, self.prompted_at)
        opened_at = self.opened_at
        if not opened_at:
            return timing_of_stream(*times)
        return timing_of_answer(*times, opened_at, monotonic() if is_whole else 0.0)

    def error_timing(self) -> bytes:
        """The same for a request that ends now with an error: the phases that are over, and the whole time."""
        arrived_at, admitted_at, parsed_at = self.arrived_at, self.admitted_at, self.parsed_at
        # Until the message is made, both are the same moment.
        parsed_at = 0.0 if parsed_at == admitted_at else parsed_at
        return timing_of_error(arrived_at, admitted_at, parsed_at, self.prompted_at, monotonic())

    def answered(self, status: int) -> None:
        """All is said, with this HTTP status or what the gRPC status corresponds to. The trace ends here."""
        trace, answer, context = self.trace, self._answer, self._context
        if trace is None or not trace.context.is_sampled:
            return
        at = unix_time(monotonic())
        trace.queue.put(
            TracedRequest(
                trace.context,
                trace.parent,
                trace.tracestate,
                trace.engine_span_id,
                context.request_id,
                self.route,
                context.caller.tenant,
                status,
                self.model,
                answer.worker_urls if answer is not None else (),
                answer.failovers if answer is not None else 0,
                answer.usage.prompt_tokens if answer is not None else 0,
                answer.usage.completion_tokens if answer is not None else 0,
                at(self.arrived_at),
                at(self.admitted_at),
                at(self.parsed_at),
                at(self.prompted_at),
                at(self.opened_at),
                at(self.ended_at),
                at(monotonic()),
            )
        )

    def log_fields(self) -> dict[str, Any]:
        """What the access log tells of it beside its status: counts, names of ours, times; no text."""
        fields: dict[str, Any] = {}
        if self.trace is not None:
            fields["trace_id"] = self.trace.trace_id
        answer = self._answer
        if answer is None:
            return fields
        usage = answer.usage
        fields["model"] = self.model
        fields["worker"] = answer.worker_urls[-1] if answer.worker_urls else ""
        fields["attempts"] = len(answer.worker_urls)
        fields["prompt_tokens"] = usage.prompt_tokens
        fields["cached_tokens"] = usage.cached_tokens
        fields["completion_tokens"] = usage.completion_tokens
        fields["queue_ms"] = round((self.admitted_at - self.arrived_at) * 1e3, 1)
        if answer.is_open:
            fields["first_token_ms"] = round((answer.opened_at - self.arrived_at) * 1e3, 1)
        return fields


def _outcome(error: BaseException) -> Outcome:
    if isinstance(error, asyncio.CancelledError):
        return "client_gone"
    if isinstance(error, SmgError):
        if error.status == 504:
            return "timeout"
        return "refused" if error.status < 500 else "failed"
    return "failed"
