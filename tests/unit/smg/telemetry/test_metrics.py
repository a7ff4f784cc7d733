"""RouterMetrics: what is counted is exported, and label values stay bounded."""

from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from smg.telemetry.exporter import MetricsListener, new_registry
from smg.telemetry.exposition import exposition
from smg.telemetry.metrics import RequestResult, RouterMetrics
from smg.telemetry.series import Distribution


def new_metrics() -> tuple[CollectorRegistry, RouterMetrics]:
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry, routes=["chat"])
    metrics.set_models(["m"])
    return registry, metrics


def test_writes_of_history_are_counted_with_those_that_failed():
    registry, metrics = new_metrics()
    metrics.history_written(0.004, True)
    metrics.history_written(20.0, is_kept=False)
    assert registry.get_sample_value("smg_history_write_seconds_bucket", {"le": "0.005"}) == 1
    assert registry.get_sample_value("smg_history_write_seconds_count") == 2
    assert registry.get_sample_value("smg_history_write_failures_total") == 1


def test_a_request_counts_in_every_family():
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    assert registry.get_sample_value("smg_requests_inflight", {"route": "chat", "model": "m"}) == 1
    result = RequestResult(
        "ok",
        3.0,
        1.0,
        prompt_tokens=7,
        completion_tokens=5,
        cached_tokens=2,
        queue_s=0.5,
        tokenize_s=0.25,
        failovers=1,
    )
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
        "smg_queue_wait_seconds_sum": 0.5,
        "smg_tokenize_seconds_sum": 0.25,
        "smg_failovers_total": 1,
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
        metrics.error_answered(f"/path/{number}", f"code-{number}")
    for status in range(100, 600):
        metrics.http_response("chat", status)
    lines = [line for line in exposition(registry).decode().splitlines() if not line.startswith("#")]
    assert registry.get_sample_value("smg_http_responses_total", {"route": "other", "status": "404"}) == 1000
    assert registry.get_sample_value("smg_http_responses_total", {"route": "chat", "status": "other"}) == 1000
    assert registry.get_sample_value("smg_http_responses_total", {"route": "chat", "status": "5xx"}) == 95
    assert registry.get_sample_value("smg_http_responses_total", {"route": "chat", "status": "503"}) == 1
    assert registry.get_sample_value("smg_errors_total", {"route": "other", "code": "other"}) == 1000
    assert len(lines) < 170


def test_a_model_that_goes_away_while_its_request_runs_leaves_no_request_in_flight():
    registry, metrics = new_metrics()
    series = metrics.request_started("chat", "m")
    metrics.set_models([])
    metrics.request_finished(series, RequestResult("failed", 0.1))
    assert registry.get_sample_value("smg_requests_inflight", {"route": "chat", "model": "m"}) == 0


def test_picks_are_counted_for_registered_workers_and_go_with_them():
    registry, metrics = new_metrics()
    metrics.set_workers(["grpc://a:1", "grpc://b:1"])
    result = RequestResult("ok", 1.0, workers=["grpc://a:1", "grpc://b:1", "grpc://a:1", "grpc://gone:1"])
    metrics.request_finished(metrics.request_started("chat", "m"), result)

    def picks(url):
        return registry.get_sample_value("smg_worker_picks_total", {"worker": url})

    assert [picks(f"grpc://{name}:1") for name in ("a", "b", "gone")] == [2, 1, None]
    metrics.set_workers(["grpc://b:1"])
    assert [picks(f"grpc://{name}:1") for name in ("a", "b")] == [None, 1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [("admission_queue_full", "queue_full"), ("admission_queue_timeout", "queue_timeout")],
)
def test_what_is_not_let_in_is_counted_by_reason(code, reason):
    registry, metrics = new_metrics()
    assert registry.get_sample_value("smg_admission_rejections_total", {"reason": reason}) == 0
    metrics.error_answered("chat", code)
    assert registry.get_sample_value("smg_admission_rejections_total", {"reason": reason}) == 1
    assert registry.get_sample_value("smg_errors_total", {"route": "chat", "code": code}) == 1


def test_the_buckets_of_durations_can_be_chosen():
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry, routes=["chat"], duration_bounds_s=(1.0, 60.0))
    metrics.request_finished(metrics.request_started("chat", "m"), RequestResult("ok", 30.0, 0.5))
    labels = {"route": "chat", "model": "other"}
    for le, count in (("1.0", 0), ("60.0", 1), ("+Inf", 1)):
        name = "smg_request_duration_seconds_bucket"
        assert registry.get_sample_value(name, {**labels, "le": le}) == count


def test_a_request_of_twenty_minutes_falls_into_a_bucket():
    registry, metrics = new_metrics()
    metrics.request_finished(metrics.request_started("chat", "m"), RequestResult("ok", 1200.0, 0.5))
    labels = {"route": "chat", "model": "m", "le": "1800.0"}
    assert registry.get_sample_value("smg_request_duration_seconds_bucket", labels) == 1


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
