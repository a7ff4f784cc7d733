"""Traces: the spans of a request, and that a collector which is away costs requests nothing."""

import threading

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from smg.telemetry.span_export import SpanExport
from smg.telemetry.tracecontext import TraceContext, try_traceparent
from smg.telemetry.tracing import TracedRequest, Tracing

PARENT = TraceContext(2**100 + 7, 2**60 + 1, is_sampled=True)


class Queue:
    def __init__(self):
        self.put = [].append


def traced(trace, **values):
    given = {
        "request_id": "r-1", "route": "chat", "tenant": "", "status": 200, "model": "m",
        "workers": ["grpc://a:1", "grpc://b:1"], "failovers": 1, "prompt_tokens": 5, "completion_tokens": 7,
        "arrived_at": 100.0, "admitted_at": 100.001, "parsed_at": 100.01, "prompted_at": 100.02, "opened_at": 100.5,
        "answered_at": 102.0, "ended_at": 102.001,
    }  # fmt: skip
    places = (trace.context, trace.parent, trace.tracestate, trace.engine_span_id)
    return TracedRequest(*places, **{**given, **values})


def exported(*requests):
    exporter = InMemorySpanExporter()
    with SpanExport(exporter, "1.2.3") as export:
        for request in requests:
            export.put(request)
    return exporter.get_finished_spans(), export


def test_a_request_becomes_spans_under_the_callers():
    trace = Tracing(Queue(), 0.0).begin(PARENT.header, "vendor=1")
    spans, export = exported(traced(trace))
    assert export.exported == len(spans) == 4
    named = {span.name: span for span in spans}
    assert named.keys() == {"chat", "queue", "tokenize", "engine"}
    server, engine = named["chat"], named["engine"]
    assert {span.context.trace_id for span in spans} == {PARENT.trace_id}
    assert (server.parent.span_id, server.kind) == (PARENT.span_id, SpanKind.SERVER)
    assert server.parent.trace_state["vendor"] == "1"
    assert {span.parent.span_id for span in spans if span is not server} == {server.context.span_id}
    assert engine.context.span_id == try_traceparent(trace.outgoing).span_id, "what workers were told"
    assert (engine.attributes["server.address"], engine.attributes["smg.attempts"]) == ("grpc://b:1", 2)
    assert [event.name for event in engine.events] == ["first_token"]
    assert engine.end_time - engine.start_time == pytest.approx(1.98e9)
    assert server.attributes["gen_ai.usage.output_tokens"] == 7
    assert server.resource.attributes["service.version"] == "1.2.3"
    assert len({span.context.span_id for span in spans}) == 4


def test_a_request_that_was_refused_has_the_phases_that_it_reached():
    trace = Tracing(Queue(), 1.0).begin("", "")
    spans, _ = exported(traced(trace, status=503, model="", workers=[], prompted_at=0.0, opened_at=0.0))
    queue, span = spans
    assert queue.name == "queue"
    assert span.parent is None
    assert span.status.status_code is StatusCode.ERROR
    assert "gen_ai.request.model" not in span.attributes


@pytest.mark.parametrize(
    ("parent", "ratio", "is_sampled"),
    [
        (PARENT.header, 0.0, True),
        (PARENT._replace(is_sampled=False).header, 1.0, False),
        ("", 1.0, True),
        ("", 0.0, False),
        ("nonsense", 1.0, True),
    ],
)
def test_who_decides_whether_a_trace_is_recorded(parent, ratio, is_sampled):
    trace = Tracing(Queue(), ratio).begin(parent, "v=1")
    assert trace.context.is_sampled is is_sampled
    assert try_traceparent(trace.outgoing) is not None
    assert (trace.tracestate == "v=1") == (trace.parent is not None)


class Stuck:
    """An exporter whose collector takes nothing and says nothing."""

    def __init__(self):
        self.asked, self.released = threading.Event(), threading.Event()

    def export(self, spans):
        self.asked.set()
        self.released.wait()
        return SpanExportResult.FAILURE

    def shutdown(self):
        self.released.set()


def test_while_the_collector_is_stuck_traces_are_dropped_and_counted_and_nobody_waits():
    trace, exporter = Tracing(Queue(), 1.0).begin("", ""), Stuck()
    with SpanExport(exporter, "0", max_waiting=300) as export:
        for _ in range(300):
            export.put(traced(trace))
        assert exporter.asked.wait(10)
        for _ in range(1000):
            export.put(traced(trace))
        assert export.dropped >= 4 * 700, "what does not fit is dropped at once"
        exporter.released.set()
    assert export.exported == 0
    assert export.dropped == 4 * 1300, "what the collector did not take is counted as well"
