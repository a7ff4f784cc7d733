"""What a gateway says of itself and its workers at one moment, and what has happened between two such moments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from smg.cli.metrics_text import MetricsText, quantile_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_TTFT = "smg_time_to_first_token_seconds"


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """One worker.

    Attributes:
        url: its address.
        state: in a word.
        reason: why it takes no work; empty when it does, or where that is not told.
        models: ids of what it serves; empty where that is not told.
        inflight: requests of this gateway that it works on.
        running: sequences that it computes.
        waiting: sequences that wait in it.
        kv_used: tokens in its key-value cache.
        kv_capacity: most of them; 0 for no limit.
        tokens_per_second: as it tells.
        steps: since it started.
        picks: since the gateway started; None where that is not told.
    """

    url: str
    state: str
    reason: str = ""
    models: tuple[str, ...] = ()
    inflight: int = 0
    running: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_capacity: int = 0
    tokens_per_second: float = 0.0
    steps: float = 0.0
    picks: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """What the gateway has counted since it started.

    Attributes:
        version: of the gateway.
        requests: that have ended.
        failed: of these, by its fault or for lack of time.
        prompt_tokens: of requests that have ended.
        completion_tokens: likewise.
        cached_tokens: likewise, of the prompts.
        running: requests that hold a place now.
        waiting: requests that wait for one now.
        first_token: times to the first token: count by bound in seconds, cumulative.
    """

    version: str = ""
    requests: float = 0.0
    failed: float = 0.0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    cached_tokens: float = 0.0
    running: int = 0
    waiting: int = 0
    first_token: Mapping[float, float] = field(default_factory=dict[float, float])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look.

    Attributes:
        at: a monotonic clock, in seconds.
        workers: in the gateway's order.
        totals: None where the gateway tells of its workers only.
    """

    at: float
    workers: tuple[WorkerNow, ...]
    totals: Totals | None = None


@dataclass(frozen=True, slots=True)
class WorkerRates:
    """Per second, between two looks; None where that cannot be said."""

    steps: float | None = None
    requests: float | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """What has happened between two looks, per second.

    Attributes:
        requests: that ended.
        failed: of these, by the gateway's fault or for lack of time.
        completion_tokens: of requests that ended.
        prompt_tokens: likewise.
        cached_share: of the prompt tokens; None without any.
        first_token_s: median and 99th percentile, upper bounds of their buckets; None without any request.
        workers: by address.
    """

    requests: float
    failed: float
    completion_tokens: float
    prompt_tokens: float
    cached_share: float | None
    first_token_s: tuple[float, float] | None
    workers: Mapping[str, WorkerRates]


def rates_between(before: Snapshot, now: Snapshot) -> Rates:
    """What has happened between two looks. A count that has gone down began anew with a restart."""
    seconds = max(now.at - before.at, 1e-6)
    old, new = before.totals or Totals(), now.totals or Totals()
    prompt = _grown(old.prompt_tokens, new.prompt_tokens)
    buckets = {
        bound: _grown(old.first_token.get(bound, 0.0), count) for bound, count in new.first_token.items()
    }
    median, high = quantile_of(buckets, 0.5), quantile_of(buckets, 0.99)
    known = {worker.url: worker for worker in before.workers}
    return Rates(
        requests=_grown(old.requests, new.requests) / seconds,
        failed=_grown(old.failed, new.failed) / seconds,
        completion_tokens=_grown(old.completion_tokens, new.completion_tokens) / seconds,
        prompt_tokens=prompt / seconds,
        cached_share=_grown(old.cached_tokens, new.cached_tokens) / prompt if prompt else None,
        first_token_s=(median, high) if median is not None and high is not None else None,
        workers={
            worker.url: _worker_rates(known[worker.url], worker, seconds)
            for worker in now.workers
            if worker.url in known
        },
    )


def snapshot_of(
    metrics: MetricsText, at: float, told: Mapping[str, tuple[str, tuple[str, ...]]] | None = None
) -> Snapshot:
    """A look at /metrics.

    Args:
        metrics: what it says.
        at: a monotonic clock, in seconds.
        told: by address, why a worker takes no work and its models, where the gateway tells.
    """
    states = {
        sample.labels["worker"]: sample.labels["state"]
        for sample in metrics.samples("smg_worker_state")
        if sample.value
    }
    workers = tuple(_worker(metrics, url, state, (told or {}).get(url)) for url, state in states.items())
    return Snapshot(at, workers, _totals(metrics))


def _worker(
    metrics: MetricsText, url: str, state: str, told: tuple[str, tuple[str, ...]] | None
) -> WorkerNow:
    def value(name: str) -> float:
        return metrics.total(f"smg_worker_{name}", worker=url)

    reason, models = told or ("", ())
    return WorkerNow(
        url,
        state,
        reason,
        models,
        inflight=int(value("inflight_requests")),
        running=int(value("running_sequences")),
        waiting=int(value("waiting_sequences")),
        kv_used=int(value("kv_used_tokens")),
        kv_capacity=int(value("kv_capacity_tokens")),
        tokens_per_second=value("tokens_per_second"),
        steps=value("steps_total"),
        picks=value("picks_total"),
    )


def _totals(metrics: MetricsText) -> Totals:
    buckets: dict[float, float] = {}
    for sample in metrics.samples(f"{_TTFT}_bucket"):
        bound = float(sample.labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + sample.value
    build = next(metrics.samples("smg_build_info"), None)
    return Totals(
        version=build.labels.get("version", "") if build is not None else "",
        requests=metrics.total("smg_requests_total"),
        failed=sum(metrics.total("smg_requests_total", outcome=outcome) for outcome in ("failed", "timeout")),
        prompt_tokens=metrics.total("smg_prompt_tokens_total"),
        completion_tokens=metrics.total("smg_completion_tokens_total"),
        cached_tokens=metrics.total("smg_cached_tokens_total"),
        running=int(metrics.total("smg_admission_running")),
        waiting=int(metrics.total("smg_admission_waiting")),
        first_token=buckets,
    )


def _worker_rates(before: WorkerNow, now: WorkerNow, seconds: float) -> WorkerRates:
    picks = None
    if before.picks is not None and now.picks is not None:
        picks = _grown(before.picks, now.picks) / seconds
    return WorkerRates(_grown(before.steps, now.steps) / seconds, picks)


def _grown(before: float, now: float) -> float:
    return now - before if now >= before else now
