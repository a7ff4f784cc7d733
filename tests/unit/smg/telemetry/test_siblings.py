"""Metrics of several processes are told as those of one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from smg.telemetry.siblings import MetricsShare, SharedRegistry, Siblings


def registry(count: float, held: float, seen: float, start: float) -> CollectorRegistry:
    mine = CollectorRegistry()
    Counter("smg_requests", "Requests.", ["model"], registry=mine).labels("m").inc(count)
    Gauge("smg_admission_running", "Held.", registry=mine).set(held)
    Gauge("smg_worker_load", "The engine's.", ["worker"], registry=mine).labels("w").set(seen)
    Gauge("process_start_time_seconds", "Start.", registry=mine).set(start)
    durations = Histogram("smg_seconds", "Durations.", buckets=(1, 2), registry=mine)
    for _ in range(int(count)):
        durations.observe(1.5)
    return mine


def told(shared) -> dict[str, float]:
    lines = generate_latest(shared).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def test_counts_add_up_and_what_all_look_at_does_not(tmp_path):
    others = {"1": registry(3, 2, 7, 50), "2": registry(4, 0, 9, 60)}

    def ask(path: str) -> str:
        return generate_latest(others[path.rpartition("/")[2].removesuffix(".sock")]).decode()

    shared = SharedRegistry(registry(2, 1, 8, 55), Siblings(0, 3, tmp_path), ask)
    numbers = told(shared)
    assert numbers['smg_requests_total{model="m"}'] == 9
    assert numbers["smg_admission_running"] == 3
    assert numbers['smg_worker_load{worker="w"}'] == 9
    assert numbers["process_start_time_seconds"] == 50
    assert numbers['smg_seconds_bucket{le="2.0"}'] == numbers["smg_seconds_count"] == 9
    assert numbers["smg_router_processes"] == 3
    text = generate_latest(shared).decode()
    assert text.count("# TYPE smg_requests_total counter") == 1


def test_a_process_that_does_not_answer_is_left_out(tmp_path):
    numbers = told(SharedRegistry(registry(2, 1, 8, 55), Siblings(0, 2, tmp_path)))
    assert numbers["smg_router_processes"] == 1
    assert numbers['smg_requests_total{model="m"}'] == 2


def test_a_process_gives_its_metrics_to_the_others_as_often_as_asked(tmp_path):
    mine, other = registry(1, 0, 0, 1), registry(5, 0, 0, 1)
    shared = SharedRegistry(mine, Siblings(0, 2, tmp_path))
    # What a process that died has left is no hindrance.
    (tmp_path / "1.sock").touch()
    with MetricsShare(other, Siblings(1, 2, tmp_path)):
        for _ in range(3):
            assert told(shared)['smg_requests_total{model="m"}'] == 6
    assert not (tmp_path / "1.sock").exists()
