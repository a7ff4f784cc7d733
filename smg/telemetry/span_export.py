"""Sends traces to an OpenTelemetry collector from a thread of its own. The only module that imports OpenTelemetry.

The line to the thread is bounded: while the collector is away or slow, traces are dropped and counted, and requests
notice nothing. Attributes follow OpenTelemetry's semantic conventions for HTTP and GenAI where those have a name.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Self

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer
    from opentelemetry.util.types import AttributeValue

    from smg.telemetry.tracing import TracedRequest

MAX_WAITING = 4096
BATCH = 256
PAUSE_S = 1.0
_FIRST_SERVER_FAULT = 500
_OPERATIONS = {"chat": "chat", "completions": "text_completion"}


class _GivenIds(IdGenerator):
    """Gives spans the ids that were sent to workers long before the span is made."""

    def __init__(self) -> None:
        self.trace_id = 1
        self.span_ids: deque[int] = deque()

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_ids.popleft()


class _Ended(SpanProcessor):
    """Keeps spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class SpanMaker:
    """Makes spans of requests that have ended: one for the request, and one a phase below it."""

    def __init__(self, version: str) -> None:
        self._ids = _GivenIds()
        self._ended = _Ended()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource({"service.name": "smg", "service.version": version}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._ended)
        self._tracer: Tracer = provider.get_tracer("smg", version)

    def spans(self, request: TracedRequest) -> list[ReadableSpan]:
        """The spans of a request, the request's own last."""
        context, parent = request.context, request.parent
        self._ids.trace_id = context.trace_id
        self._ids.span_ids.append(context.span_id)
        above: Context | None = None
        if parent is not None:
            remote = SpanContext(
                parent.trace_id,
                parent.span_id,
                is_remote=True,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
                trace_state=TraceState.from_header([request.tracestate]) if request.tracestate else None,
            )
            above = set_span_in_context(NonRecordingSpan(remote))
        span = self._tracer.start_span(
            request.route,
            above,
            SpanKind.SERVER,
            _request_attributes(request),
            start_time=_ns(request.arrived_at),
        )
        if request.status >= _FIRST_SERVER_FAULT:
            span.set_status(Status(StatusCode.ERROR))
        self._phases(request, set_span_in_context(span))
        span.end(_ns(request.ended_at))
        made, self._ended.spans = self._ended.spans, []
        return made

    def _phases(self, request: TracedRequest, above: Context) -> None:
        self._phase("queue", above, request.arrived_at, request.admitted_at, _child_id(request, 1))
        if not request.prompted_at:
            return
        self._phase("tokenize", above, request.parsed_at, request.prompted_at, _child_id(request, 2))
        self._ids.span_ids.append(request.engine_span_id)
        engine = self._tracer.start_span(
            "engine",
            above,
            SpanKind.CLIENT,
            _engine_attributes(request),
            start_time=_ns(request.prompted_at),
        )
        if request.opened_at:
            engine.add_event("first_token", timestamp=_ns(request.opened_at))
        if request.status >= _FIRST_SERVER_FAULT:
            engine.set_status(Status(StatusCode.ERROR))
        engine.end(_ns(request.answered_at or request.ended_at))

    def _phase(self, name: str, above: Context, start: float, end: float, span_id: int) -> None:
        self._ids.span_ids.append(span_id)
        self._tracer.start_span(name, above, start_time=_ns(start)).end(_ns(end))


class SpanExport:
    """Exports requests while a `with` body runs (TraceQueue).

    Attributes:
        exported: spans that the collector has taken.
        dropped: spans that nobody has got, because the collector is away or slow. A request counts as four at least.
    """

    def __init__(self, exporter: SpanExporter, version: str, max_waiting: int = MAX_WAITING) -> None:
        """Args: max_waiting: most requests that wait to be exported; more are dropped."""
        self.exported = self.dropped = 0
        self._exporter = exporter
        self._maker = SpanMaker(version)
        self._max_waiting = max_waiting
        self._waiting: deque[TracedRequest] = deque()
        self._is_due = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="span-export", daemon=True)

    def put(self, request: TracedRequest) -> None:
        """Take a request that has ended."""
        waiting = self._waiting
        if len(waiting) >= self._max_waiting:
            self.dropped += _SPANS_OF_A_REQUEST
            return
        waiting.append(request)
        if len(waiting) >= BATCH:
            self._is_due.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Export what waits; give up after some seconds."""
        self._is_stopped = True
        self._is_due.set()
        self._thread.join(timeout=2 * PAUSE_S)
        # Wakes an exporter that waits to try again.
        self._exporter.shutdown()
        self._thread.join(timeout=PAUSE_S)

    def _run(self) -> None:
        while not (self._is_stopped and not self._waiting):
            self._is_due.wait(PAUSE_S)
            self._is_due.clear()
            while self._waiting:
                self._export()

    def _export(self) -> None:
        spans: list[ReadableSpan] = []
        with contextlib.suppress(IndexError):
            for _ in range(BATCH):
                spans += self._maker.spans(self._waiting.popleft())
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.dropped += len(spans)


_SPANS_OF_A_REQUEST = 4


def otlp_export(endpoint: str, version: str) -> SpanExport:
    """An export over OTLP/gRPC.

    Args:
        endpoint: host:port or http://host:port without TLS; https://host:port with it.
        version: of this build.
    """
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return SpanExport(
        OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://")), version
    )


def _request_attributes(request: TracedRequest) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "http.response.status_code": request.status,
        "smg.request_id": request.request_id,
        "smg.route": request.route,
    }
    operation = _OPERATIONS.get(request.route.removeprefix("grpc_"))
    if operation:
        attributes["gen_ai.operation.name"] = operation
    if request.tenant:
        attributes["smg.tenant"] = request.tenant
    if request.model:
        attributes["gen_ai.request.model"] = request.model
        attributes["gen_ai.usage.input_tokens"] = request.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = request.completion_tokens
    return attributes


def _engine_attributes(request: TracedRequest) -> dict[str, AttributeValue]:
    return {
        "server.address": request.workers[-1] if request.workers else "",
        "smg.attempts": len(request.workers),
        "smg.failovers": request.failovers,
    }


def _child_id(request: TracedRequest, number: int) -> int:
    """An id for a phase that nobody else has to know: made of the request's, so that none must be kept."""
    return (request.context.span_id + number * 0x9E3779B97F4A7C15) % 2**64 or 1


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
