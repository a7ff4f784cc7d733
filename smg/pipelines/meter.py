"""Measures requests: one meter each, from arrival to end, into the router's metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from smg.errors import SmgError
from smg.telemetry.metrics import RequestResult

if TYPE_CHECKING:
    from types import TracebackType

    from smg.pipelines.answer import Answer
    from smg.telemetry.metrics import Outcome, RouterMetrics
    from smg.telemetry.series import RequestSeries


class Meters:
    """Starts meters."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics

    def start(self, route: str) -> RequestMeter:
        """A meter for a request that has just arrived on a route of the table."""
        return RequestMeter(self._metrics, route)


class RequestMeter:
    """Measures one request.

    Attributes:
        created: unix time of its arrival, in whole seconds; what answers carry as `created`.
        route: name of the route that it arrived on.
    """

    __slots__ = ("created", "route", "_metrics", "_started_at")

    def __init__(self, metrics: RouterMetrics, route: str) -> None:
        self.created = int(time.time())  # noqa: TID251 - the one wall clock that clients see
        self._metrics = metrics
        self.route = route
        self._started_at = asyncio.get_running_loop().time()

    def measure(self, model: str, answer: Answer) -> Measurement:
        """Measure the answer of a request whose model is known, while the `with` body runs."""
        return Measurement(
            self._metrics, self._metrics.request_started(self.route, model), answer, self._started_at
        )


class Measurement:
    """The time from arrival to the end of the `with` body, and what the answer counted."""

    __slots__ = ("_answer", "_metrics", "_series", "_started_at")

    def __init__(
        self, metrics: RouterMetrics, series: RequestSeries, answer: Answer, started_at: float
    ) -> None:
        self._metrics = metrics
        self._series = series
        self._answer = answer
        self._started_at = started_at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        answer = self._answer
        usage = answer.usage
        self._metrics.request_finished(
            self._series,
            RequestResult(
                outcome=_outcome(error or answer.error),
                duration_s=asyncio.get_running_loop().time() - self._started_at,
                first_token_s=answer.opened_at - self._started_at if answer.is_open else None,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
            ),
        )


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "ok"
    if isinstance(error, asyncio.CancelledError):
        return "client_gone"
    if isinstance(error, SmgError):
        if error.status == 504:
            return "timeout"
        return "refused" if error.status < 500 else "failed"
    return "failed"
