"""The metrics of workers: read from the registry when somebody reads the metrics, so they cost nothing in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

STATES = ("connecting", "ready", "unhealthy", "draining")


class WorkerLoad(Protocol):
    """The fields of smg.engine.v1.Load that are exported."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    tokens_per_second: float
    steps: int


class WorkerState(Protocol):
    """What is read of a worker. May be read from another thread."""

    @property
    def url(self) -> str:
        """Its address."""
        ...

    @property
    def state_name(self) -> str:
        """One of STATES."""
        ...

    @property
    def inflight_requests(self) -> int:
        """Sequences that this router waits for."""
        ...

    @property
    def connections(self) -> int:
        """Times that a connection to it was opened."""
        ...

    @property
    def cb_state(self) -> int:
        """Its circuit breaker: 0 closed, 1 open, 2 half open."""
        ...

    @property
    def steps_per_second(self) -> float:
        """Scheduler steps of the engine over about the last second."""
        ...

    @property
    def load(self) -> WorkerLoad:
        """Its load as last heard."""
        ...


class WorkerMetrics(Collector):
    """Tells about the registered workers."""

    def __init__(self, registry: CollectorRegistry, workers: Callable[[], Iterable[WorkerState]]) -> None:
        """Register with a registry. Args: workers lists the registered ones."""
        self._workers = workers
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Every worker, as prometheus families. Called by the registry, perhaps in another thread."""
        gauges = {
            name: GaugeMetricFamily(f"smg_worker_{name}", text, labels=["worker"])
            for name, text in _GAUGES.items()
        }
        counters = {
            name: CounterMetricFamily(f"smg_worker_{name}", text, labels=["worker"])
            for name, text in _COUNTERS.items()
        }
        states = GaugeMetricFamily(
            "smg_worker_state", "1 for the state that the worker is in.", labels=["worker", "state"]
        )
        steps, connections = counters["steps"].samples, counters["connections"].samples
        for worker in self._workers():
            url, state_now, load = worker.url, worker.state_name, worker.load
            # One mapping for all of them: there are tens of thousands of samples in a large fleet.
            labels = {"worker": url}
            for name, value in _gauges_of(worker, state_now, load).items():
                gauges[name].samples.append(Sample(f"smg_worker_{name}", labels, value))
            steps.append(Sample("smg_worker_steps_total", labels, load.steps))
            connections.append(Sample("smg_worker_connections_total", labels, worker.connections))
            for state in STATES:
                told = {"worker": url, "state": state}
                states.samples.append(Sample("smg_worker_state", told, state_now == state))
        yield from (*gauges.values(), *counters.values(), states)


def _gauges_of(worker: WorkerState, state_name: str, load: WorkerLoad) -> dict[str, float]:
    return {
        "ready": state_name == "ready",
        "inflight_requests": worker.inflight_requests,
        "running_sequences": load.running,
        "waiting_sequences": load.waiting,
        "kv_used_tokens": load.kv_used_tokens,
        "kv_capacity_tokens": load.kv_capacity_tokens,
        "tokens_per_second": load.tokens_per_second,
        "steps_per_second": worker.steps_per_second,
        "cb_state": worker.cb_state,
    }


_GAUGES = {
    "ready": "1 when the worker takes work.",
    "inflight_requests": "Sequences that this router waits for.",
    "running_sequences": "Sequences that the engine computes, all routers together.",
    "waiting_sequences": "Sequences that wait in the engine.",
    "kv_used_tokens": "Tokens held in the engine's key-value cache.",
    "kv_capacity_tokens": "Most tokens that the cache holds; 0 when unlimited.",
    "tokens_per_second": "Tokens that the engine generated over about the last second.",
    "steps_per_second": "Scheduler steps of the engine over about the last second.",
    "cb_state": "Circuit breaker: 0 closed, 1 open, 2 half open.",
}
_COUNTERS = {
    "steps": "Scheduler steps since the engine started, as it last told.",
    "connections": "Connections opened to the worker; the first one, and every reconnect.",
}
