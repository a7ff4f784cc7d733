"""Bounds how many requests run at a time and how many begin per second; the rest waits, in bounded number and time.

First come, first served: who comes while others wait waits behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Self

from smg.errors import DeadlineExceeded, Overloaded, SmgError, WorkerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_AFTER_S = 2


class RateLimit:
    """A bucket of starts that fills at a rate (token bucket). The clock never goes back, so neither does the bucket."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: per_s: starts per second, above 0; burst: most starts at once, at least 1."""
        self._per_s = per_s
        self._burst = max(1.0, burst)
        self._clock = clock
        self._left = self._burst
        self._filled_s = clock()

    def wait_s(self) -> float:
        """Seconds until a start is allowed; 0 for now."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_s) * self._per_s)
        self._filled_s = now
        return max(0.0, (1 - self._left) / self._per_s)

    def take(self) -> None:
        """Count a start."""
        self._left -= 1


class Admission:
    """A counter of running requests with a first-come queue before it.

    Args:
        max_running: requests that run at a time; 0 for no bound.
        queue_size: requests that may wait.
        queue_timeout_s: longest wait.
        rate: how many begin per second; None for no bound.
        request_timeout_s: longest time of a request, its wait included.
    """

    def __init__(
        self,
        max_running: int = 0,
        queue_size: int = 100,
        queue_timeout_s: float = 60.0,
        rate: RateLimit | None = None,
        request_timeout_s: float = inf,
    ) -> None:
        self._max_running = max_running
        self._queue_size = queue_size
        self._queue_timeout_s = queue_timeout_s
        self._rate = rate
        self._request_timeout_s = request_timeout_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.running = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def permit(self) -> Self:
        """A place to hold while the body of an `async with` runs; freed on every exit.

        Entering raises what `wait` raises.
        """
        # Places are only counted, so all requests share the one object.
        return self

    async def __aenter__(self) -> None:
        if not self.enter_now():
            await self.wait()

    def enter_now(self) -> bool:
        """Take a place if one is free and nobody waits; else `wait` gets one. `leave` gives it back."""
        return not self._waiting and self._may_start()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give a place back: to the first in the queue, if there is one."""
        self.running -= 1
        if self._waiting:
            self._admit()

    def _may_start(self) -> bool:
        """Take a place, and a start, if both are free."""
        if self._max_running and self.running >= self._max_running:
            return False
        if self._rate is not None:
            if self._rate.wait_s():
                return False
            self._rate.take()
        self.running += 1
        return True

    def _admit(self) -> None:
        """Let in from the queue whom there is a place for."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif self._may_start():
                self._waiting.popleft().set_result(None)
            else:
                break
        if self._waiting and self._rate is not None and self._timer is None:
            # A place that becomes free calls again; a start that becomes free has nobody else to tell.
            delay_s = self._rate.wait_s()
            if delay_s:
                self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._admit()

    def refuse_waiting(self, error: SmgError) -> None:
        """End the wait of everybody in the queue with an error."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(error)

    async def wait(self) -> None:
        """Wait in the queue for a place.

        Raises:
            Overloaded: the queue is full.
            WorkerUnavailable: waited longer than the queue's time.
            DeadlineExceeded: waited longer than a request may take.
        """
        if len(self._waiting) >= self._queue_size:
            raise Overloaded(
                f"{self.running} requests run and {len(self._waiting)} wait; no more are taken now",
                code="admission_queue_full",
                retry_after_s=RETRY_AFTER_S,
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            async with asyncio.timeout(min(self._queue_timeout_s, self._request_timeout_s)):
                await place
        except TimeoutError:
            self._give_back(place)
            if self._request_timeout_s < self._queue_timeout_s:
                raise DeadlineExceeded(
                    f"the request took longer than {self._request_timeout_s:g} s, all of it in the queue"
                ) from None
            raise WorkerUnavailable(
                f"waited {self._queue_timeout_s:g} s for a place; none became free",
                code="admission_queue_timeout",
                retry_after_s=RETRY_AFTER_S,
            ) from None
        except asyncio.CancelledError:
            self._give_back(place)
            raise

    def _give_back(self, place: asyncio.Future[None]) -> None:
        # A place that was handed over while its owner was leaving goes to the next in the queue.
        if place.done() and not place.cancelled() and place.exception() is None:
            self.leave()
        elif place in self._waiting:
            self._waiting.remove(place)
