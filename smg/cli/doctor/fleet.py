"""Judges a gateway's workers by what the gateway tells of them, over HTTP and gRPC alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.cli.doctor.findings import Finding, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOOK_AT_IT = "look at it from here: smg doctor {url}"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("cannot connect", "it is down, or cannot be reached from the gateway; " + _LOOK_AT_IT),
    ("no step for", "its engine hangs: look at its logs and restart it"),
    ("health check", "its engine is starting, draining or has failed; look at its logs"),
    ("draining", "it is being removed, and goes when its work has ended"),
    ("speaks neither", "the address is none of an engine; " + _LOOK_AT_IT),
    ("breaker", "it failed again and again: look at its logs; it is tried again by itself"),
)


class ListedWorker(NamedTuple):
    """A worker as a gateway lists it.

    Attributes:
        url: its address.
        state: "ready", "connecting", "unhealthy" or "draining".
        reason: why it takes no work; empty when it does.
        models: ids of what it serves.
        breaker: "closed", "open" or "half_open"; empty where the gateway does not tell.
    """

    url: str
    state: str
    reason: str
    models: tuple[str, ...]
    breaker: str = ""


def worker_findings(workers: Sequence[ListedWorker], model: str) -> Iterator[Finding]:
    """What is wrong with the fleet. Args: model: should be served; empty for any."""
    if not workers:
        yield problem(
            "workers",
            "the gateway has no workers",
            "start it with --worker-urls grpc://HOST:PORT, or add one: POST /workers",
        )
        return
    ready = [worker for worker in workers if worker.state == "ready"]
    if not ready:
        yield problem(
            "workers",
            f"none of its {len(workers)} workers is ready: requests get 503",
            "what is wrong with each is told below",
        )
    elif len(ready) < len(workers):
        yield warning("workers", f"{len(ready)} of {len(workers)} are ready", "what is wrong is told below")
    else:
        yield ok("workers", f"all {len(workers)} are ready")
    for worker in workers:
        if worker.state != "ready":
            advice = next((advice for word, advice in _ADVICE if word in worker.reason), _LOOK_AT_IT)
            yield warning(
                "worker",
                f"{worker.url} is {worker.state}: {worker.reason or 'no reason told'}",
                advice.format(url=worker.url),
            )
        elif worker.breaker == "open":
            yield warning(
                "worker",
                f"{worker.url}: its circuit breaker is open",
                "it failed again and again: look at its logs; it is tried again by itself",
            )
    if model:
        yield _model(workers, model)


def _model(workers: Sequence[ListedWorker], model: str) -> Finding:
    serving = [worker for worker in workers if model in worker.models]
    if any(worker.state == "ready" for worker in serving):
        return ok("model", f"{model} is served by {len(serving)} workers")
    if serving:
        return problem("model", f"no worker that serves {model} is ready", "see its workers above")
    served = sorted({each for worker in workers for each in worker.models})
    return problem(
        "model",
        f"no worker serves {model!r}; served: {', '.join(served) or 'none'}",
        "ask for one of these, or give the gateway --model-alias",
    )
