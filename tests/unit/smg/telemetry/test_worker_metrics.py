"""WorkerMetrics: what is told of workers is what they are when somebody asks."""

from prometheus_client import CollectorRegistry

from smg.telemetry.worker_metrics import STATES, WorkerMetrics
from smg.workers.registered import WorkerState


class Load:
    running = 3
    waiting = 2
    kv_used_tokens = 100
    kv_capacity_tokens = 200
    tokens_per_second = 12.5
    steps = 77


class Worker:
    url = "grpc://a:1"
    state_name = "ready"
    inflight_requests = 4
    cb_state = 2
    steps_per_second = 12.5
    connections = 2
    load = Load()


def test_workers_are_read_when_the_metrics_are_read():
    registry, workers = CollectorRegistry(), [Worker()]
    WorkerMetrics(registry, lambda: workers)

    def value(name, **labels):
        return registry.get_sample_value(f"smg_worker_{name}", {"worker": "grpc://a:1", **labels})

    assert (value("ready"), value("inflight_requests"), value("running_sequences")) == (1, 4, 3)
    assert (value("kv_capacity_tokens"), value("steps_total"), value("connections_total")) == (200, 77, 2)
    assert (value("steps_per_second"), value("cb_state")) == (12.5, 2)
    assert [value("state", state=state) for state in STATES] == [0, 1, 0, 0]
    workers[0].state_name = "draining"
    assert value("ready") == 0
    assert value("state", state="draining") == 1
    workers.clear()
    assert value("ready") is None


def test_every_state_that_a_worker_may_be_in_has_its_series():
    assert set(STATES) == {state.value for state in WorkerState}
