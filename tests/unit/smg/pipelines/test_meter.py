"""RequestMeter: what is measured of a request is told alike to metrics, Server-Timing, the access log and traces."""

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry

from smg.errors import DeadlineExceeded, InternalError, InvalidRequest
from smg.pipelines.answer import Answer
from smg.pipelines.meter import Meters
from smg.telemetry.metrics import RouterMetrics
from smg.telemetry.tracing import Tracing
from smg.types.context import Caller, RequestContext
from tests.unit.smg.workers.fake_worker import FakeWorker

CONTEXT = RequestContext("r-1", caller=Caller("acme"))
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Sink:
    def open(self, head):
        pass


class Queue(list):
    put = list.append


def started(tracing=None, context=CONTEXT):
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry, routes=["chat"])
    metrics.set_models(["m"])
    metrics.set_workers(["grpc://a:1"])
    return registry, Meters(metrics, tracing).start("chat", context)


def names(header):
    assert all(re.fullmatch(rb"\w+;dur=\d+\.\d{3}", part) for part in header.split(b", "))
    return [part.split(b";")[0].decode() for part in header.split(b", ")]


def begun(meter):
    """An answer that is measured and whose first event has come."""
    answer = Answer("id", 0, "m", Sink())
    meter.parsed()
    measured = meter.measure("m", answer)
    answer.start(FakeWorker("w", "grpc://a:1"), [], 1)
    return answer, measured


async def test_server_timing_tells_the_phases_that_are_over():
    _, meter = started()
    meter.parsed()
    assert names(meter.server_timing(is_whole=False)) == ["queue", "parse"]
    answer, _ = begun(meter)
    assert names(meter.server_timing(is_whole=False)) == ["queue", "parse", "tokenize"]
    answer.open()
    phases = ["queue", "parse", "tokenize", "first_token"]
    assert names(meter.server_timing(is_whole=False)) == phases
    assert names(meter.server_timing(is_whole=True)) == [*phases, "decode", "total"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidRequest("no"), "refused"),
        (InternalError("no"), "failed"),
        (DeadlineExceeded("no"), "timeout"),
        (asyncio.CancelledError(), "client_gone"),
        (ZeroDivisionError(), "failed"),
    ],
    ids=str,
)
async def test_an_error_decides_the_outcome(error, outcome):
    registry, meter = started()
    _, measured = begun(meter)
    with pytest.raises(type(error)), measured:
        raise error
    labels = {"route": "chat", "model": "m", "outcome": outcome}
    assert registry.get_sample_value("smg_requests_total", labels) == 1
    assert registry.get_sample_value("smg_worker_picks_total", {"worker": "grpc://a:1"}) == 1


async def test_attempts_after_the_first_token_are_failovers():
    registry, meter = started()
    answer, measured = begun(meter)
    with measured:
        answer.start(FakeWorker("w", "grpc://a:1"), [], 1)
        answer.open()
        answer.start(FakeWorker("w", "grpc://a:1"), [], 1)
    assert registry.get_sample_value("smg_failovers_total", {"route": "chat", "model": "m"}) == 1
    assert registry.get_sample_value("smg_worker_picks_total", {"worker": "grpc://a:1"}) == 3
    fields = meter.log_fields()
    assert (fields["attempts"], fields["worker"], fields["model"]) == (3, "grpc://a:1", "m")


async def test_what_is_logged_of_a_request_that_got_nowhere():
    _, meter = started()
    assert meter.log_fields() == {}


@pytest.mark.parametrize("parent", ["", PARENT])
async def test_without_tracing_the_callers_context_goes_to_workers_as_it_is(parent):
    _, meter = started(context=CONTEXT._replace(traceparent=parent, tracestate="v=1"))
    assert meter.trace_headers == (parent, "v=1" if parent else ""), "a state of no trace means nothing"
    meter.answered(200)


async def test_with_tracing_workers_are_told_of_a_place_below_ours():
    queue = Queue()
    _, meter = started(Tracing(queue, 1.0), CONTEXT._replace(traceparent=PARENT, tracestate="v=1"))
    answer, measured = begun(meter)
    with measured:
        answer.open()
        answer.usage.completion_tokens = 5
    meter.answered(200)
    (request,) = queue
    assert meter.trace_headers == (f"00-{'a' * 32}-{request.engine_span_id:016x}-01", "v=1")
    assert (request.tenant, request.request_id, request.status) == ("acme", "r-1", 200)
    assert (request.completion_tokens, request.model) == (5, "m")
    times = [
        request.arrived_at,
        request.admitted_at,
        request.parsed_at,
        request.prompted_at,
        request.opened_at,
    ]
    assert times == sorted(times)
    assert 0 <= request.ended_at - request.arrived_at < 60
    assert meter.log_fields()["trace_id"] == "a" * 32


async def test_a_trace_that_nobody_records_costs_no_place_in_the_queue():
    queue = Queue()
    _, meter = started(Tracing(queue, 0.0))
    meter.answered(200)
    assert not queue
