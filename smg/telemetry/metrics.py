"""Every metric of the router, declared here and nowhere else.

The number of label values is bounded by construction: routes are those of the route table, models those that
workers serve, workers those that are registered; everything else counts under "other". A request costs about
three microseconds; see smg/telemetry/series.py. All methods but `collect` belong to the event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from smg.telemetry.series import Distribution, RequestSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

OTHER = "other"
Outcome = Literal["ok", "refused", "failed", "timeout", "client_gone"]

# Up to an hour: long generations must not all fall into the last bucket.
DURATION_BOUNDS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)

_LOWEST_STATUS, _HIGHEST_STATUS = 100, 599


class WorkerState(Protocol):
    """What is read of a worker when somebody asks for the metrics. May be read from another thread."""

    @property
    def url(self) -> str:
        """Its address."""
        ...

    @property
    def is_ready(self) -> bool:
        """It takes work."""
        ...

    @property
    def inflight_requests(self) -> int:
        """Sequences that this router waits for."""
        ...

    @property
    def load(self) -> WorkerLoad:
        """Its load as last heard."""
        ...

    @property
    def cb_state(self) -> int:
        """Its circuit breaker: 0 closed, 1 open, 2 half open."""
        ...

    @property
    def steps_per_second(self) -> float:
        """Scheduler steps of the engine over about the last second."""
        ...


class WorkerLoad(Protocol):
    """The fields of smg.engine.v1.Load that are exported."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    tokens_per_second: float


class RequestResult(NamedTuple):
    """How a request ended.

    Attributes:
        outcome: "ok"; "refused" for a 4xx; "failed" for a 5xx; "timeout"; "client_gone".
        duration_s: from its arrival to its end.
        first_token_s: from its arrival to the first token; None when there was none.
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens of the output.
        cached_tokens: tokens of the prompt that an engine's cache covered.
    """

    outcome: Outcome
    duration_s: float
    first_token_s: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class RouterMetrics(Collector):
    """Counts what the router does. One per process, registered with the registry it is given."""

    def __init__(self, registry: CollectorRegistry, *, routes: Iterable[str] = ()) -> None:
        """Register with `registry`. `routes` are the values that the label `route` may have."""
        self._routes = frozenset(routes)
        self._models: frozenset[str] = frozenset()
        self._requests: dict[tuple[str, str], RequestSeries] = {}
        self._responses: Counter[tuple[str, int]] = Counter()
        self._grpc_responses: Counter[tuple[str, int]] = Counter()
        self._retries: Counter[str] = Counter()
        self._slow_readers = 0
        self._workers: Callable[[], Iterable[WorkerState]] = tuple
        registry.register(self)

    def set_models(self, models: Iterable[str]) -> None:
        """Tell which models are served: the values that the label `model` may have from now on."""
        self._models = frozenset(models)

    def watch_workers(self, workers: Callable[[], Iterable[WorkerState]]) -> None:
        """Tell how to list the registered workers; asked whenever somebody reads the metrics."""
        self._workers = workers

    def request_started(self, route: str, model: str) -> RequestSeries:
        """A request for a model has arrived. Its end must be told once, with the series that this returns."""
        series = self._requests.get((route, model)) or self._new_series(route, model)
        series.inflight += 1
        return series

    def request_finished(self, series: RequestSeries, result: RequestResult) -> None:
        """A request has ended, one way or the other."""
        series.inflight -= 1
        series.outcomes[result.outcome] = series.outcomes.get(result.outcome, 0) + 1
        series.duration.observe(result.duration_s)
        series.prompt_tokens += result.prompt_tokens
        series.completion_tokens += result.completion_tokens
        series.cached_tokens += result.cached_tokens
        first_token_s = result.first_token_s
        if first_token_s is not None:
            series.time_to_first_token.observe(first_token_s)
            if result.completion_tokens > 1:
                gaps = result.completion_tokens - 1
                series.inter_token.observe((result.duration_s - first_token_s) / gaps)

    def http_response(self, route: str, status: int) -> None:
        """An HTTP request was answered; `route` is the table's path, not the client's."""
        known = _LOWEST_STATUS <= status <= _HIGHEST_STATUS
        self._responses[route if route in self._routes else OTHER, status if known else 0] += 1

    def grpc_response(self, route: str, code: int) -> None:
        """A gRPC call has ended, with this google.rpc.Code."""
        self._grpc_responses[route if route in self._routes else OTHER, code] += 1

    def retried(self, route: str) -> None:
        """A request is given to a worker again."""
        self._retries[route if route in self._routes else OTHER] += 1

    def slow_reader_aborted(self) -> None:
        """A stream was cut because its client did not read."""
        self._slow_readers += 1

    def collect(self) -> Iterator[Metric]:
        """Everything, as prometheus families. Called by the registry, perhaps in another thread."""
        yield from self._collect_requests()
        yield from self._collect_events()
        yield from self._collect_workers()

    def _new_series(self, route: str, model: str) -> RequestSeries:
        key = (route if route in self._routes else OTHER, model if model in self._models else OTHER)
        if key not in self._requests:
            self._requests[key] = RequestSeries(DURATION_BOUNDS_S, TOKEN_BOUNDS_S)
        return self._requests[key]

    def _collect_requests(self) -> Iterator[Metric]:
        labels = ["route", "model"]
        total = CounterMetricFamily(
            "smg_requests", "Requests for a model that have ended, by outcome.", labels=[*labels, "outcome"]
        )
        inflight = GaugeMetricFamily("smg_requests_inflight", "Requests for a model that run.", labels=labels)
        tokens = {
            name: CounterMetricFamily(f"smg_{name}_tokens", text, labels=labels)
            for name, text in _TOKENS.items()
        }
        timings = {
            name: HistogramMetricFamily(f"smg_{name}_seconds", text, labels=labels)
            for name, text in _TIMINGS.items()
        }
        for key, series in list(self._requests.items()):
            for outcome, count in list(series.outcomes.items()):
                total.add_metric([*key, outcome], count)
            inflight.add_metric(key, series.inflight)
            tokens["prompt"].add_metric(key, series.prompt_tokens)
            tokens["completion"].add_metric(key, series.completion_tokens)
            tokens["cached"].add_metric(key, series.cached_tokens)
            for name, values in _timings_of(series).items():
                timings[name].add_metric(key, values.buckets(), values.sum)
        yield from (total, inflight, *tokens.values(), *timings.values())

    def _collect_events(self) -> Iterator[Metric]:
        responses = CounterMetricFamily("smg_http_responses", "HTTP answers.", labels=["route", "status"])
        for (route, status), count in list(self._responses.items()):
            responses.add_metric([route, str(status) if status else OTHER], count)
        calls = CounterMetricFamily(
            "smg_grpc_responses", "gRPC calls that have ended, by google.rpc.Code.", labels=["route", "code"]
        )
        for (route, code), count in list(self._grpc_responses.items()):
            calls.add_metric([route, str(code)], count)
        retries = CounterMetricFamily("smg_retries", "Requests given to a worker again.", labels=["route"])
        for route, count in list(self._retries.items()):
            retries.add_metric([route], count)
        yield from (responses, calls, retries)
        yield CounterMetricFamily(
            "smg_slow_reader_aborts", "Streams cut because the client did not read.", value=self._slow_readers
        )

    def _collect_workers(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"smg_worker_{name}", text, labels=["worker"])
            for name, text in _WORKER_GAUGES.items()
        }
        for worker in self._workers():
            load = worker.load
            values: dict[str, float] = {
                "ready": worker.is_ready,
                "inflight_requests": worker.inflight_requests,
                "running_sequences": load.running,
                "waiting_sequences": load.waiting,
                "kv_used_tokens": load.kv_used_tokens,
                "kv_capacity_tokens": load.kv_capacity_tokens,
                "tokens_per_second": load.tokens_per_second,
                "steps_per_second": worker.steps_per_second,
                "cb_state": worker.cb_state,
            }
            for name, value in values.items():
                families[name].add_metric([worker.url], value)
        yield from families.values()


_TOKENS = {
    "prompt": "Prompt tokens of requests that have ended.",
    "completion": "Output tokens of requests that have ended.",
    "cached": "Prompt tokens that an engine's prefix cache covered.",
}
_TIMINGS = {
    "request_duration": "From a request's arrival to its end.",
    "time_to_first_token": "From a request's arrival to its first output token.",
    "inter_token": "Mean time between the output tokens of a request.",
}
_WORKER_GAUGES = {
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


def _timings_of(series: RequestSeries) -> dict[str, Distribution]:
    return {
        "request_duration": series.duration,
        "time_to_first_token": series.time_to_first_token,
        "inter_token": series.inter_token,
    }
