"""Ends a router's work in order: readiness off, nothing new, what runs finishes, and what does not is told why.

Load balancers need time to notice that readiness is off; until then everything is served. What still runs when the
grace period is over ends as any other failure does: an error in the stream and its end, a status, and an abort to the
engine. A connection that were simply cut would leave clients to guess.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING, Protocol

from smg.errors import WorkerUnavailable

if TYPE_CHECKING:
    from smg.pipelines.admission import Admission
    from smg.pipelines.engine_call import EngineCall

logger = logging.getLogger(__name__)

# Time for the ends of answers that did not finish in the grace period to reach their clients and engines.
FAREWELL_S = 1.0


def end_signals() -> list[signal.Signals]:
    """The signals that ask for an orderly end. A hang-up that is ignored, as nohup has it, stays ignored."""
    asking = [signal.SIGTERM, signal.SIGINT]
    return asking if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*asking, signal.SIGHUP]


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` when the process is asked to end; when it is asked again, end it at once."""

    def asked(number: int) -> None:
        if stop.is_set():
            # The operator has asked twice: nothing is waited for any more.
            os._exit(128 + number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in end_signals():
        loop.add_signal_handler(number, asked, number)


class HttpSide(Protocol):
    """The HTTP listener."""

    def stop(self, grace_s: float) -> None:
        """Accept nothing new, and cut what is left after the grace period."""
        ...


class GrpcSide(Protocol):
    """The gRPC listener."""

    def say_not_serving(self) -> None:
        """Tell those who ask or watch that nothing new is wanted."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Accept nothing new, and cut what is left after the grace period. Returns when all has ended."""
        ...


class Drain:
    """The end of one router. Run it once."""

    def __init__(
        self, admission: Admission, engine_call: EngineCall, *, delay_s: float, grace_s: float
    ) -> None:
        """Args: delay_s: time in which everything is still taken; grace_s: time that running requests get after it."""
        self._admission = admission
        self._engine_call = engine_call
        self._delay_s = delay_s
        self._grace_s = grace_s

    async def run(self, http: HttpSide, grpc: GrpcSide, serving: asyncio.Task[None]) -> None:
        """Drain both listeners; readiness is off already. Returns when all has ended."""
        grpc.say_not_serving()
        if self._delay_s:
            logger.info("not ready any more; requests are taken for another %g s", self._delay_s)
            await asyncio.sleep(self._delay_s)
        running = self._admission.running
        if running:
            logger.info(
                "draining: %d requests run and get %g s; a second signal ends now", running, self._grace_s
            )
        http.stop(self._grace_s + FAREWELL_S)
        ending = asyncio.get_running_loop().call_later(self._grace_s, self._end_answers)
        try:
            await asyncio.shield(asyncio.gather(serving, grpc.stop(self._grace_s + FAREWELL_S)))
        finally:
            ending.cancel()

    def _end_answers(self) -> None:
        running, waiting = self._admission.running, self._admission.waiting
        if running or waiting:
            message = "%d requests still ran and %d waited after %g s of grace; they are ended"
            logger.warning(message, running, waiting, self._grace_s)
        error = WorkerUnavailable("the gateway is shutting down", code="shutting_down")
        self._admission.refuse_waiting(error)
        self._engine_call.stop_all(error)
