"""The metrics of the process itself: what runs and waits, how late the event loop is, which build this is."""

from __future__ import annotations

import asyncio
import platform
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from smg.telemetry.series import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
# Between looks: seldom enough to cost nothing, often enough to see what holds the loop up for long.
LOOK_S = 0.25


class Queue(Protocol):
    """The admission queue, as far as it is told of."""

    running: int

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        ...


class Exported(Protocol):
    """What is told of the export of traces."""

    exported: int
    dropped: int


class LoopLag:
    """How late the event loop runs what is due."""

    def __init__(self) -> None:
        self.seen = Distribution(LAG_BOUNDS_S)

    async def watch(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()

        # A callback that orders its successor: no task is woken for a look.
        def look(due: float) -> asyncio.TimerHandle:
            nonlocal handle
            now = monotonic()
            if due:
                self.seen.observe(max(0.0, now - due))
            handle = loop.call_later(LOOK_S, look, now + LOOK_S)
            return handle

        handle = look(0.0)
        try:
            await loop.create_future()
        finally:
            handle.cancel()


class RuntimeMetrics(Collector):
    """Tells about the process.

    Attributes:
        lag: of the event loop; somebody has to run its watch.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        version: str,
        queue: Queue,
        queue_size: int,
        traces: Exported | None = None,
    ) -> None:
        """Register with a registry. Args: queue_size: most that may wait; traces is None where none are made."""
        self.lag = LoopLag()
        self._build = [version, platform.python_version()]
        self._queue = queue
        self._queue_size = queue_size
        self._traces = traces
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The families. Called by the registry, perhaps in another thread."""
        build = GaugeMetricFamily("smg_build_info", "1; which build this is.", labels=["version", "python"])
        build.add_metric(self._build, 1)
        yield build
        yield GaugeMetricFamily(
            "smg_admission_running", "Requests that hold a place.", value=self._queue.running
        )
        yield GaugeMetricFamily(
            "smg_admission_waiting", "Requests that wait for a place.", value=self._queue.waiting
        )
        yield GaugeMetricFamily(
            "smg_admission_queue_size", "Requests that may wait for a place.", value=self._queue_size
        )
        lag = HistogramMetricFamily(
            "smg_event_loop_lag_seconds", "How late the event loop ran what was due, four looks a second."
        )
        lag.add_metric([], self.lag.seen.buckets(), self.lag.seen.sum)
        yield lag
        if self._traces is not None:
            yield CounterMetricFamily(
                "smg_trace_spans_exported", "Spans that the collector has taken.", value=self._traces.exported
            )
            yield CounterMetricFamily(
                "smg_trace_spans_dropped",
                "Spans that were dropped: the collector is away or slow.",
                value=self._traces.dropped,
            )
