"""Examines a gateway through its HTTP port."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import httpx

from smg.cli.doctor.findings import Finding, note, ok, problem, warning
from smg.cli.doctor.fleet import ListedWorker, worker_findings
from smg.cli.doctor.router_grpc import KEY_NEEDED
from smg.cli.doctor.transport import http_transport
from smg.cli.doctor.wire import unreachable
from smg.cli.metrics_text import MetricsText

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from smg.cli.doctor.wire import Target

_MOST_SKEW_S = 5.0
_LATE_S = 0.05
_FULL = 0.9
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403


async def examine_router(target: Target, model: str, key: str, version: str) -> AsyncIterator[Finding]:
    """Look at an HTTP address.

    Args:
        target: the address.
        model: a model that it should serve; empty for any.
        key: an API key; empty for none.
        version: of this build.
    """
    fault = await unreachable(target, "the gateway")
    if fault is not None:
        yield fault
        return
    yield ok("connection", f"{target.authority} can be reached")
    transport = await http_transport(target)
    yield transport
    if transport.level == "problem":
        return
    async with _client(target, key) as client:
        try:
            async for finding in _examine(client, model, version):
                yield finding
        except (httpx.HTTPError, ValueError) as error:
            yield problem(
                "protocol",
                f"it does not answer as a gateway does: {error or type(error).__name__}",
                "it may be hung, or no SMG gateway: look at its logs",
            )


def _client(target: Target, key: str) -> httpx.AsyncClient:
    scheme = "https" if target.is_tls else "http"
    return httpx.AsyncClient(
        base_url=f"{scheme}://{target.authority}",
        headers={"authorization": f"Bearer {key}"} if key else {},
        timeout=target.timeout_s,
        verify=target.trust() if target.is_tls else False,
        # An operator's proxy is for the world outside.
        trust_env=False,
    )


async def _examine(client: httpx.AsyncClient, model: str, version: str) -> AsyncIterator[Finding]:
    health = await client.get("/health")
    metrics_page = await client.get("/metrics")
    metrics = MetricsText(metrics_page.text) if metrics_page.status_code == _OK else MetricsText("")
    if not metrics.has("smg_build_info"):
        yield problem(
            "protocol",
            "an HTTP server answers, but it is no SMG gateway of this kind: /metrics has no smg_build_info",
            "give the gateway's HTTP port; for an engine give its gRPC port: smg doctor grpc://HOST:PORT",
        )
        return
    yield _clock(health)
    yield _version(metrics, version)
    if health.status_code == _OK:
        yield ok("health", "serving")
    else:
        yield problem("health", f"it says {health.text[:100]}", "it ends what runs and takes nothing new")
    readiness = await client.get("/readiness")
    if readiness.status_code == _OK:
        yield ok("readiness", "ready")
    else:
        told: Any = readiness.json()
        yield problem(
            "readiness", f"it is not ready: {told.get('reason', readiness.text[:100])}", "see below"
        )
    async for finding in _workers(client, metrics, model):
        yield finding
    for finding in _load(metrics):
        yield finding


async def _workers(client: httpx.AsyncClient, metrics: MetricsText, model: str) -> AsyncIterator[Finding]:
    answer = await client.get("/workers")
    if answer.status_code in (_UNAUTHORIZED, _FORBIDDEN):
        yield note("workers", "its workers are told to its operator only", KEY_NEEDED)
        # Their states are no secret.
        workers = [
            ListedWorker(sample.labels["worker"], sample.labels["state"], "", ())
            for sample in metrics.samples("smg_worker_state")
            if sample.value
        ]
        model = ""
    else:
        answer.raise_for_status()
        told: Any = answer.json()
        workers = [_listed(worker) for worker in told["workers"]]
    for finding in worker_findings(workers, model):
        yield finding


def _listed(worker: dict[str, Any]) -> ListedWorker:
    models: list[dict[str, Any]] = worker.get("models") or []
    breaker: Any = worker.get("circuit_breaker") or worker.get("breaker") or ""
    if isinstance(breaker, dict):
        breaker = breaker.get("state", "")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
    return ListedWorker(
        worker["url"],
        worker["status"],
        worker.get("reason", ""),
        tuple(str(model["id"]) for model in models),
        str(breaker),  # pyright: ignore[reportUnknownArgumentType] - as above
    )


def _clock(answer: httpx.Response) -> Finding:
    date = answer.headers.get("date")
    if not date:
        return note("clock", "the gateway does not tell its time")
    skew_s = (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
    if abs(skew_s) > _MOST_SKEW_S:
        return warning(
            "clock",
            f"its clock and this machine's differ by {abs(skew_s):.0f} s",
            "set both by NTP: logs and traces of several machines cannot be compared otherwise",
        )
    return ok("clock", "its time is this machine's")


def _version(metrics: MetricsText, version: str) -> Finding:
    theirs = next(metrics.samples("smg_build_info")).labels.get("version", "unknown")
    if theirs != version:
        return warning(
            "version",
            f"the gateway is smg {theirs}, this command is {version}",
            "use the gateway's own version to be sure of what is told here",
        )
    return ok("version", f"smg {theirs}")


def _load(metrics: MetricsText) -> Iterator[Finding]:
    running, waiting = metrics.total("smg_admission_running"), metrics.total("smg_admission_waiting")
    size = metrics.total("smg_admission_queue_size")
    text = f"{running:.0f} requests run, {waiting:.0f} wait"
    if waiting and waiting >= size:
        yield problem(
            "queue",
            f"{text}: the queue is full, and more get 429",
            "add workers, or raise --max-concurrent-requests where the workers have room, or --queue-size",
        )
    elif waiting:
        yield warning(
            "queue", text, "add workers, or raise --max-concurrent-requests where the workers have room"
        )
    else:
        yield ok("queue", text)
    turned_away = metrics.total("smg_admission_rejections_total")
    if turned_away:
        yield note("queue", f"{turned_away:.0f} requests were not let in since it started")
    late_s = metrics.quantile("smg_event_loop_lag_seconds", 0.99)
    if late_s is not None and late_s > _LATE_S:
        yield warning(
            "event loop",
            f"one of a hundred looks was up to {late_s * 1000:g} ms late",
            "the gateway has too little CPU: give it a core of its own, or start more gateways",
        )
    elif late_s is not None:
        yield ok("event loop", f"99 of 100 looks were at most {late_s * 1000:g} ms late")
    used, most = metrics.total("process_open_fds"), metrics.total("process_max_fds")
    if most and used > _FULL * most:
        yield problem(
            "files",
            f"{used:.0f} of {most:.0f} files and sockets are open",
            "raise the limit (ulimit -n, LimitNOFILE=)",
        )
    lost = metrics.total("smg_trace_spans_dropped_total")
    if lost:
        yield warning(
            "traces",
            f"{lost:.0f} spans were dropped",
            "the collector is away or slow: --otlp-traces-endpoint",
        )
