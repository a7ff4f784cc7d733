"""smg top: rates between two looks, and how a fleet is drawn."""

from math import inf

import pytest
from rich.console import Console

from smg.cli.metrics_text import MetricsText
from smg.cli.top.snapshot import Snapshot, Totals, WorkerNow, rates_between, snapshot_of
from smg.cli.top.view import fleet_view

BEFORE = Snapshot(
    10.0,
    (WorkerNow("grpc://a:1", "ready", steps=100, picks=5.0),),
    Totals(
        requests=10, completion_tokens=1000, prompt_tokens=0, first_token={0.1: 8.0, 1.0: 10.0, inf: 10.0}
    ),
)
NOW = Snapshot(
    12.0,
    (
        WorkerNow(
            "grpc://a:1",
            "ready",
            models=("m",),
            inflight=3,
            running=2,
            waiting=1,
            kv_used=50,
            kv_capacity=200,
            tokens_per_second=123.4,
            steps=300,
            picks=9.0,
        ),
        WorkerNow("grpc://b:1", "connecting", "cannot connect: refused"),
    ),
    Totals(
        "1.2.3",
        requests=14,
        completion_tokens=1500,
        prompt_tokens=100,
        cached_tokens=25,
        running=2,
        waiting=7,
        first_token={0.1: 8.0, 1.0: 14.0, inf: 14.0},
    ),
)


def drawn(*args):
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(fleet_view("http://x:1", *args))
    return captured.get()


def test_rates_are_per_second_of_what_has_grown():
    rates = rates_between(BEFORE, NOW)
    assert (rates.requests, rates.completion_tokens, rates.prompt_tokens) == (2, 250, 50)
    assert rates.cached_share == 0.25
    assert rates.first_token_s == (1.0, 1.0), "of the requests in between alone"
    assert (rates.workers["grpc://a:1"].steps, rates.workers["grpc://a:1"].requests) == (100, 2)
    assert "grpc://b:1" not in rates.workers


def test_a_count_that_went_down_began_anew():
    rates = rates_between(
        NOW, Snapshot(13.0, (WorkerNow("grpc://a:1", "ready", steps=20),), Totals(requests=3))
    )
    assert (rates.requests, rates.workers["grpc://a:1"].steps) == (3, 20)
    assert rates.first_token_s is None


def test_the_fleet_is_drawn_worker_by_worker():
    text = drawn(NOW, rates_between(BEFORE, NOW))
    lines = text.splitlines()
    assert "smg 1.2.3 at http://x:1" in lines[0]
    assert "workers 1/2 ready" in lines[0]
    assert "waiting 7" in lines[0]
    assert "requests/s 2.0" in lines[1]
    assert "TTFT p50 ≤1s p99 ≤1s" in lines[1]
    (row,) = (line for line in lines if line.startswith("grpc://a:1"))
    assert row.split() == ["grpc://a:1", "ready", "3", "2", "1", "25%", "123", "100", "2.0", "m"]
    assert any("cannot connect: refused" in line for line in lines)


def test_what_cannot_be_said_yet_is_left_open():
    (row,) = (line for line in drawn(NOW, None).splitlines() if line.startswith("grpc://a:1"))
    assert row.split()[-3:] == ["-", "-", "m"], "no rates before there are two looks"
    text = drawn(Snapshot(1.0, NOW.workers), None, "the gateway is gone")
    assert "waiting 7" not in text
    assert "the gateway is gone" in text


def test_a_look_at_the_metrics_text():
    text = """\
smg_worker_state{state="ready",worker="grpc://a:1"} 0
smg_worker_state{state="draining",worker="grpc://a:1"} 1
smg_worker_running_sequences{worker="grpc://a:1"} 4
smg_requests_total{model="m",outcome="ok",route="chat"} 5
smg_requests_total{model="n",outcome="timeout",route="chat"} 2
smg_time_to_first_token_seconds_bucket{le="0.5",model="m",route="chat"} 3
smg_time_to_first_token_seconds_bucket{le="0.5",model="n",route="chat"} 1
smg_time_to_first_token_seconds_bucket{le="+Inf",model="m",route="chat"} 4
"""
    snapshot = snapshot_of(MetricsText(text), 1.0, {"grpc://a:1": ("draining", ("m",))})
    (worker,) = snapshot.workers
    assert (worker.state, worker.reason, worker.running, worker.models) == ("draining", "draining", 4, ("m",))
    assert (snapshot.totals.requests, snapshot.totals.failed) == (7, 2)
    assert snapshot.totals.first_token == {0.5: 4, inf: 4}


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.1), (0.8, 0.1), (0.9, 1.0), (1.0, inf)])
def test_quantiles_are_bounds_of_buckets(share, bound):
    text = "".join(f'h_bucket{{le="{le}"}} {count}\n' for le, count in (("0.1", 8), ("1.0", 9), ("+Inf", 10)))
    assert MetricsText("# TYPE h histogram\n" + text).quantile("h", share) == bound
    assert MetricsText("").quantile("h", share) is None
