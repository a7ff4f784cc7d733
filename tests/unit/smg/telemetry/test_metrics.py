"""RouterMetrics: what is counted is exported, and label values stay bounded."""

from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from smg.telemetry.exporter import MetricsListener, exposition, new_registry
from smg.telemetry.metrics import RequestResult, RouterMetrics
from smg.telemetry.series import Distribution


class Load:
    running = 3
    waiting = 2
    kv_used_tokens = 100
    kv_capacity_tokens = 200
    tokens_per_second = 12.5


class Worker:
    url = "grpc://a:1"
    is_ready = True
    inflight_requests = 4
    load = Load()
    cb_state = 2
    steps_per_second = 12.5


def new_metrics() -> tuple[CollectorRegistry, RouterMetrics]:
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry, routes=["chat"])
    metrics.set_models(["m"])
    return registry, metrics


def test_a_request_counts_in_every_family():
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    assert registry.get_sample_value("smg_requests_inflight", {"route": "chat", "model": "m"}) == 1
    result = RequestResult("ok", 3.0, 1.0, prompt_tokens=7, completion_tokens=5, cached_tokens=2)
    metrics.request_finished(series, result)
    labels = {"route": "chat", "model": "m"}
    expected = {
        "smg_requests_inflight": 0,
        "smg_prompt_tokens_total": 7,
        "smg_completion_tokens_total": 5,
        "smg_cached_tokens_total": 2,
        "smg_request_duration_seconds_sum": 3.0,
        "smg_time_to_first_token_seconds_sum": 1.0,
        "smg_inter_token_seconds_sum": 0.5,
        "smg_inter_token_seconds_count": 1,
    }
    assert {name: registry.get_sample_value(name, labels) for name in expected} == expected
    assert registry.get_sample_value("smg_requests_total", {**labels, "outcome": "ok"}) == 1


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_request_with_fewer_than_two_tokens_has_no_time_between_tokens(tokens):
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    metrics.request_finished(series, RequestResult("ok", 3.0, 1.0, completion_tokens=tokens))
    assert registry.get_sample_value("smg_inter_token_seconds_count", {"route": "chat", "model": "m"}) == 0


def test_a_request_without_a_first_token_has_no_time_to_it():
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    metrics.request_finished(series, RequestResult("refused", 0.1))
    labels = {"route": "chat", "model": "m"}
    assert registry.get_sample_value("smg_time_to_first_token_seconds_count", labels) == 0
    assert registry.get_sample_value("smg_requests_total", {**labels, "outcome": "refused"}) == 1


def test_names_that_clients_invent_share_one_series():
    registry, metrics = new_metrics()
    for number in range(1000):
        series = metrics.request_started(f"/path/{number}", f"model-{number}")
        metrics.request_finished(series, RequestResult("refused", 0.0))
        metrics.http_response(f"/path/{number}", 404)
        metrics.http_response("chat", 1000 + number)
    lines = [line for line in exposition(registry).decode().splitlines() if not line.startswith("#")]
    assert registry.get_sample_value("smg_http_responses_total", {"route": "other", "status": "404"}) == 1000
    assert registry.get_sample_value("smg_http_responses_total", {"route": "chat", "status": "other"}) == 1000
    assert len(lines) < 100


def test_a_model_that_goes_away_while_its_request_runs_leaves_no_request_in_flight():
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    metrics.set_models([])
    metrics.request_finished(series, RequestResult("failed", 0.1))
    assert registry.get_sample_value("smg_requests_inflight", {"route": "chat", "model": "m"}) == 0


def test_workers_are_read_when_the_metrics_are_read():
    registry, metrics = new_metrics()
    workers = [Worker()]
    metrics.watch_workers(lambda: workers)
    labels = {"worker": "grpc://a:1"}
    assert registry.get_sample_value("smg_worker_ready", labels) == 1
    assert registry.get_sample_value("smg_worker_inflight_requests", labels) == 4
    assert registry.get_sample_value("smg_worker_running_sequences", labels) == 3
    assert registry.get_sample_value("smg_worker_kv_capacity_tokens", labels) == 200
    assert registry.get_sample_value("smg_worker_steps_per_second", labels) == 12.5
    assert registry.get_sample_value("smg_worker_cb_state", labels) == 2
    workers.clear()
    assert registry.get_sample_value("smg_worker_ready", labels) is None


def test_events_are_counted():
    registry, metrics = new_metrics()
    metrics.retried("chat")
    metrics.retried("invented")
    assert registry.get_sample_value("smg_retries_total", {"route": "chat"}) == 1
    assert registry.get_sample_value("smg_retries_total", {"route": "other"}) == 1
    metrics.slow_reader_aborted()
    assert registry.get_sample_value("smg_slow_reader_aborts_total") == 1


@given(st.lists(st.floats(0, 100, allow_nan=False)))
def test_buckets_are_cumulative_and_bounds_inclusive(values):
    bounds = (0.5, 1.0, 10.0)
    distribution = Distribution(bounds)
    for value in values:
        distribution.observe(value)
    counts = dict(distribution.buckets())
    assert counts["+Inf"] == len(values)
    for bound in bounds:
        assert counts[str(bound)] == sum(value <= bound for value in values)


def test_the_listener_serves_the_metrics_until_it_is_left():
    registry = new_registry()
    RouterMetrics(registry, routes=["chat"]).http_response("chat", 200)
    with MetricsListener(registry, "127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.port}/metrics"
        with urlopen(address, timeout=10) as answer:
            body = answer.read().decode()
    assert 'smg_http_responses_total{route="chat",status="200"} 1.0' in body
    assert "process_resident_memory_bytes" in body
    with pytest.raises(OSError, match="refused"):
        urlopen(address, timeout=10)
