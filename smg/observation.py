"""Builds what watches the router: its metrics, their listener, and the export of its traces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from smg.pipelines.meter import Meters
from smg.telemetry.exporter import MetricsListener, new_registry
from smg.telemetry.metrics import DURATION_BOUNDS_S, RouterMetrics
from smg.telemetry.runtime_metrics import RuntimeMetrics
from smg.telemetry.tracing import Tracing
from smg.telemetry.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Sequence

    from smg.settings import TelemetrySettings
    from smg.telemetry.runtime_metrics import Queue
    from smg.telemetry.siblings import Siblings
    from smg.telemetry.span_export import SpanExport
    from smg.telemetry.worker_metrics import WorkerLoad
    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """A registered worker as the metrics see it (WorkerState)."""

    entry: RegisteredWorker

    @property
    def url(self) -> str:
        """Its address."""
        return self.entry.url

    @property
    def state_name(self) -> str:
        """Its state in a word."""
        return self.entry.state.value

    @property
    def inflight_requests(self) -> int:
        """Sequences that this router waits for."""
        return self.entry.inflight_requests

    @property
    def connections(self) -> int:
        """Connections opened since its protocol is known."""
        return self.entry.worker.connections if self.entry.worker is not None else 0

    @property
    def cb_state(self) -> int:
        """Its circuit breaker: 0 closed, 1 open, 2 half open."""
        return self.entry.cb_state

    @property
    def steps_per_second(self) -> float:
        """Scheduler steps of the engine over about the last second."""
        return self.entry.steps_per_second

    @property
    def load(self) -> WorkerLoad:
        """Its load as last heard."""
        return self.entry.load


class Observation:
    """The registry of metrics and everything that fills it.

    Attributes:
        registry: has all metrics of this process.
        told: what is given out: the registry, or all processes' together.
        metrics: counts requests and answers.
        runtime: tells about the process.
        meters: measure requests.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        routes: Iterable[str],
        workers: WorkerRegistry,
        queue: Queue,
        queue_size: int,
        default_host: str,
        siblings: Siblings | None = None,
    ) -> None:
        """Build; nothing runs before `start`.

        Args:
            settings: what to tell.
            routes: the names of all routes.
            workers: the workers to tell about.
            queue: the admission queue.
            queue_size: most that may wait in it.
            default_host: address of the metrics listener where the settings name none.
            siblings: other processes of this router, whose metrics are told together with these; None when there are none.
        """
        self._settings = settings
        self._default_host = default_host
        self._workers = workers
        self._export = _span_export(settings)
        self.registry = self.told = new_registry()
        self._siblings = siblings
        if siblings is not None:
            from smg.telemetry.siblings import SharedRegistry

            self.told = SharedRegistry(self.registry, siblings)
        bounds = settings.prometheus_duration_buckets or DURATION_BOUNDS_S
        self.metrics = RouterMetrics(self.registry, routes=routes, duration_bounds_s=bounds)
        WorkerMetrics(self.registry, self._watched)
        self.runtime = RuntimeMetrics(self.registry, own_version(), queue, queue_size, self._export)
        tracing = Tracing(self._export, settings.trace_sample_ratio) if self._export is not None else None
        self.meters = Meters(self.metrics, tracing)
        workers.on_change(once_a_turn(self._workers_changed))
        self._workers_changed()

    def start(self, stack: contextlib.ExitStack) -> int | None:
        """Export traces and listen for scrapes until the stack is left; the port of the listener, if there is one.

        Raises:
            OSError: the port cannot be had.
        """
        if self._export is not None:
            stack.enter_context(self._export)
        if self._siblings is not None:
            from smg.telemetry.siblings import MetricsShare

            stack.enter_context(MetricsShare(self.registry, self._siblings))
        if self._settings.prometheus_port is None:
            return None
        host = self._settings.prometheus_host or self._default_host
        listener = MetricsListener(self.told, host, self._settings.prometheus_port)
        return stack.enter_context(listener).port

    def _watched(self) -> Sequence[WatchedWorker]:
        return [WatchedWorker(entry) for entry in self._workers.workers()]

    def _workers_changed(self) -> None:
        self.metrics.set_models(self._workers.models())
        self.metrics.set_workers(entry.url for entry in self._workers.workers())


def once_a_turn(callback: Callable[[], None]) -> Callable[[], None]:
    """A callback that is called once for all the calls of one turn of the event loop, at its end.

    A thousand workers that connect at a time change the registry a thousand times.
    """
    is_due = False

    def call() -> None:
        nonlocal is_due
        is_due = False
        callback()

    def called() -> None:
        nonlocal is_due
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # The router is being built.
            callback()
            return
        if not is_due:
            is_due = True
            loop.call_soon(call)

    return called


def own_version() -> str:
    """Version of this build."""
    try:
        return version("smg")
    except PackageNotFoundError:
        return "unknown"


def _span_export(settings: TelemetrySettings) -> SpanExport | None:
    if not settings.enable_trace:
        return None
    from smg.telemetry.span_export import otlp_export

    return otlp_export(settings.otlp_traces_endpoint, own_version())
