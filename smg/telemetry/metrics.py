"""Every metric of requests and answers, declared here; those of workers and of the process stand beside.

The number of label values is bounded by construction: routes are those of the route table, models those that
workers serve, workers those that are registered, codes and statuses our own; everything else counts under "other". A
request costs about three microseconds, at its end; see smg/telemetry/series.py. All methods but `collect` belong to
the event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from smg.telemetry.labels import OTHER, REJECTIONS, error_code, status_text
from smg.telemetry.series import Distribution, RequestSeries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["DURATION_BOUNDS_S", "OTHER", "TOKEN_BOUNDS_S", "Outcome", "RequestResult", "RouterMetrics"]

Outcome = Literal["ok", "refused", "failed", "timeout", "client_gone"]

# Up to an hour: long generations must not all fall into the last bucket.
DURATION_BOUNDS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestResult(NamedTuple):
    """How a request ended.

    Attributes:
        outcome: "ok"; "refused" for a 4xx; "failed" for a 5xx; "timeout"; "client_gone".
        duration_s: from its arrival to its end.
        first_token_s: from its arrival to the first token; None when there was none.
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens of the output.
        cached_tokens: tokens of the prompt that an engine's cache covered.
        queue_s: wait for a place among the running requests.
        tokenize_s: from the message to the prompt as token ids.
        workers: addresses of the workers that it was given to, one an attempt.
        failovers: attempts that went on after the first token.
    """

    outcome: Outcome
    duration_s: float
    first_token_s: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queue_s: float = 0.0
    tokenize_s: float = 0.0
    workers: Sequence[str] = ()
    failovers: int = 0


class RouterMetrics(Collector):
    """Counts what the router does. One per process, registered with the registry it is given."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        routes: Iterable[str] = (),
        duration_bounds_s: Sequence[float] = DURATION_BOUNDS_S,
    ) -> None:
        """Register with a registry.

        Args:
            registry: whom to register with.
            routes: the values that the label `route` may have.
            duration_bounds_s: upper bounds of the buckets of durations, ascending.
        """
        self._routes = frozenset(routes)
        self._bounds_s = tuple(duration_bounds_s)
        self._models: frozenset[str] = frozenset()
        self._requests: dict[tuple[str, str], RequestSeries] = {}
        self._responses: Counter[tuple[str, int]] = Counter()
        self._grpc_responses: Counter[tuple[str, int]] = Counter()
        self._retries: Counter[str] = Counter()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._rejections: Counter[str] = Counter(dict.fromkeys(REJECTIONS.values(), 0))
        self._picks: dict[str, int] = {}
        self._slow_readers = self._retries_refused = 0
        self._history_writes = Distribution(TOKEN_BOUNDS_S)
        self._history_failures = 0
        registry.register(self)

    def set_models(self, models: Iterable[str]) -> None:
        """Tell which models are served: the values that the label `model` may have from now on."""
        self._models = frozenset(models)

    def set_workers(self, urls: Iterable[str]) -> None:
        """Tell which workers are registered: the values that the label `worker` may have; others are forgotten."""
        self._picks = {url: self._picks.get(url, 0) for url in urls}

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
        series.queue_wait.observe(result.queue_s)
        series.tokenize.observe(result.tokenize_s)
        series.prompt_tokens += result.prompt_tokens
        series.completion_tokens += result.completion_tokens
        series.cached_tokens += result.cached_tokens
        series.failovers += result.failovers
        for url in result.workers:
            if url in self._picks:
                self._picks[url] += 1
        first_token_s = result.first_token_s
        if first_token_s is not None:
            series.time_to_first_token.observe(first_token_s)
            if result.completion_tokens > 1:
                gaps = result.completion_tokens - 1
                series.inter_token.observe((result.duration_s - first_token_s) / gaps)

    def http_response(self, route: str, status: int) -> None:
        """An HTTP request was answered; `route` is the table's path, not the client's."""
        self._responses[route if route in self._routes else OTHER, status] += 1

    def grpc_response(self, route: str, code: int) -> None:
        """A gRPC call has ended, with this google.rpc.Code."""
        self._grpc_responses[route if route in self._routes else OTHER, code] += 1

    def error_answered(self, route: str, code: str) -> None:
        """A request was answered with an error of this code."""
        self._errors[route if route in self._routes else OTHER, error_code(code)] += 1
        if code in REJECTIONS:
            self._rejections[REJECTIONS[code]] += 1

    def retried(self, route: str) -> None:
        """A request is given to a worker again."""
        self._retries[route if route in self._routes else OTHER] += 1

    def retry_refused(self) -> None:
        """A request was not tried again because too many were."""
        self._retries_refused += 1

    def slow_reader_aborted(self) -> None:
        """A stream was cut because its client did not read."""
        self._slow_readers += 1

    def history_written(self, duration_s: float, is_kept: bool) -> None:
        """A response was written to the history store, or could not be."""
        self._history_writes.observe(duration_s)
        self._history_failures += not is_kept

    def collect(self) -> Iterator[Metric]:
        """Everything, as prometheus families. Called by the registry, perhaps in another thread."""
        yield from self._collect_requests()
        yield from self._collect_answers()
        yield from self._collect_events()

    def _new_series(self, route: str, model: str) -> RequestSeries:
        key = (route if route in self._routes else OTHER, model if model in self._models else OTHER)
        if key not in self._requests:
            self._requests[key] = RequestSeries(self._bounds_s, TOKEN_BOUNDS_S)
        return self._requests[key]

    def _collect_requests(self) -> Iterator[Metric]:
        labels = ["route", "model"]
        total = CounterMetricFamily(
            "smg_requests", "Requests for a model that have ended, by outcome.", labels=[*labels, "outcome"]
        )
        inflight = GaugeMetricFamily("smg_requests_inflight", "Requests for a model that run.", labels=labels)
        counts = {
            name: CounterMetricFamily(f"smg_{name}", text, labels=labels) for name, text in _COUNTS.items()
        }
        timings = {
            name: HistogramMetricFamily(f"smg_{name}_seconds", text, labels=labels)
            for name, text in _TIMINGS.items()
        }
        for key, series in list(self._requests.items()):
            for outcome, count in list(series.outcomes.items()):
                total.add_metric([*key, outcome], count)
            inflight.add_metric(key, series.inflight)
            for name, count in _counts_of(series).items():
                counts[name].add_metric(key, count)
            for name, values in _timings_of(series).items():
                timings[name].add_metric(key, values.buckets(), values.sum)
        yield from (total, inflight, *counts.values(), *timings.values())

    def _collect_answers(self) -> Iterator[Metric]:
        responses = CounterMetricFamily("smg_http_responses", "HTTP answers.", labels=["route", "status"])
        by_status: Counter[tuple[str, str]] = Counter()
        for (route, status), count in list(self._responses.items()):
            by_status[route, status_text(status)] += count
        for key, count in by_status.items():
            responses.add_metric(key, count)
        calls = CounterMetricFamily(
            "smg_grpc_responses", "gRPC calls that have ended, by google.rpc.Code.", labels=["route", "code"]
        )
        for (route, code), count in list(self._grpc_responses.items()):
            calls.add_metric([route, str(code)], count)
        errors = CounterMetricFamily(
            "smg_errors", "Answers that were an error, by its code.", labels=["route", "code"]
        )
        for key, count in list(self._errors.items()):
            errors.add_metric(key, count)
        yield from (responses, calls, errors)

    def _collect_events(self) -> Iterator[Metric]:
        rejections = CounterMetricFamily(
            "smg_admission_rejections", "Requests that were not let in, by reason.", labels=["reason"]
        )
        for reason, count in list(self._rejections.items()):
            rejections.add_metric([reason], count)
        retries = CounterMetricFamily(
            "smg_retries", "Requests given to a worker again, failovers included.", labels=["route"]
        )
        for route, count in list(self._retries.items()):
            retries.add_metric([route], count)
        picks = CounterMetricFamily(
            "smg_worker_picks", "Times that a worker was picked for a request.", labels=["worker"]
        )
        for url, count in list(self._picks.items()):
            picks.add_metric([url], count)
        yield from (rejections, retries, picks)
        yield CounterMetricFamily(
            "smg_retries_refused",
            "Requests that were not tried again because of --retry-budget-ratio.",
            value=self._retries_refused,
        )
        yield CounterMetricFamily(
            "smg_slow_reader_aborts", "Streams cut because the client did not read.", value=self._slow_readers
        )
        yield HistogramMetricFamily(
            "smg_history_write_seconds",
            "Time that a response took to be written to the history store, with its part of the conversation.",
            buckets=self._history_writes.buckets(),
            sum_value=self._history_writes.sum,
        )
        yield CounterMetricFamily(
            "smg_history_write_failures",
            "Responses that could not be written to the history store.",
            value=self._history_failures,
        )


_COUNTS = {
    "prompt_tokens": "Prompt tokens of requests that have ended.",
    "completion_tokens": "Output tokens of requests that have ended.",
    "cached_tokens": "Prompt tokens that an engine's prefix cache covered.",
    "failovers": "Times that an answer went on with another attempt after its first token.",
}
_TIMINGS = {
    "request_duration": "From a request's arrival to its end.",
    "queue_wait": "Wait of a request for a place among those that run.",
    "tokenize": "From a request's message to its prompt as token ids: checks, template, tokenizer.",
    "time_to_first_token": "From a request's arrival to its first output token.",
    "inter_token": "Mean time between the output tokens of a request.",
}


def _counts_of(series: RequestSeries) -> dict[str, int]:
    return {
        "prompt_tokens": series.prompt_tokens,
        "completion_tokens": series.completion_tokens,
        "cached_tokens": series.cached_tokens,
        "failovers": series.failovers,
    }


def _timings_of(series: RequestSeries) -> dict[str, Distribution]:
    return {
        "request_duration": series.duration,
        "queue_wait": series.queue_wait,
        "tokenize": series.tokenize,
        "time_to_first_token": series.time_to_first_token,
        "inter_token": series.inter_token,
    }
