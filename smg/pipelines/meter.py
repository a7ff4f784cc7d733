"""Measures requests: one meter each, from arrival to end, into the router's metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, Self

from smg.errors import SmgError
from smg.telemetry.metrics import RequestResult

if TYPE_CHECKING:
    from types import TracebackType

    from smg.pipelines.sinks import UsageCounter
    from smg.telemetry.metrics import Outcome, RouterMetrics
    from smg.telemetry.series import RequestSeries


class Measured(Protocol):
    """What a meter reads of an answer when it has ended.

    Attributes:
        usage: its token counts.
        error: what it ended with after it was opened; None while all is well.
    """

    usage: UsageCounter
    error: SmgError | None

    @property
    def is_open(self) -> bool:
        """Its first event has arrived."""
        ...

    @property
    def opened_at(self) -> float:
        """Loop time of that."""
        ...


class Meters:
    """Starts meters."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics

    def start(self, route: str) -> RequestMeter:
        """A meter for a request that has just arrived on a route of the table."""
        return RequestMeter(self._metrics, route)


class RequestMeter:
    """Measures one request: in a `with` body, from its arrival to the end of the body, what its answer counts.

    Attributes:
        created: unix time of its arrival, in whole seconds; what answers carry as `created`.
        route: name of the route that it arrived on.
    """

    __slots__ = ("created", "route", "_metrics", "_time", "_started_at", "_series", "_answer")

    def __init__(self, metrics: RouterMetrics, route: str) -> None:
        self.created = int(time.time())  # noqa: TID251 - the one wall clock that clients see
        self.route = route
        self._metrics = metrics
        self._time = asyncio.get_running_loop().time
        self._started_at = self._time()
        self._series: RequestSeries
        self._answer: Measured

    def measure(self, model: str, answer: Measured) -> Self:
        """Measure the answer of a request whose model is known, while the `with` body runs."""
        self._series = self._metrics.request_started(self.route, model)
        self._answer = answer
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        answer, started_at = self._answer, self._started_at
        usage = answer.usage
        error = error or answer.error
        result = RequestResult(
            "ok" if error is None else _outcome(error),
            self._time() - started_at,
            answer.opened_at - started_at if answer.is_open else None,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens,
        )
        self._metrics.request_finished(self._series, result)


def _outcome(error: BaseException) -> Outcome:
    if isinstance(error, asyncio.CancelledError):
        return "client_gone"
    if isinstance(error, SmgError):
        if error.status == 504:
            return "timeout"
        return "refused" if error.status < 500 else "failed"
    return "failed"
