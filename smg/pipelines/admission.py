"""Bounds how many requests run at a time; the rest waits in a queue of bounded length and time."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Self

from smg.errors import DeadlineExceeded, Overloaded, SmgError, WorkerUnavailable

RETRY_AFTER_S = 2


class Admission:
    """A counter of running requests with a first-come queue behind it.

    Args:
        max_running: requests that run at a time; 0 for no bound.
        queue_size: requests that may wait.
        queue_timeout_s: longest wait.
        request_timeout_s: longest time of a request, its wait included.
    """

    def __init__(
        self,
        max_running: int = 0,
        queue_size: int = 100,
        queue_timeout_s: float = 60.0,
        request_timeout_s: float = inf,
    ) -> None:
        self._max_running = max_running
        self._queue_size = queue_size
        self._queue_timeout_s = queue_timeout_s
        self._request_timeout_s = request_timeout_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def permit(self) -> Self:
        """A place to hold while the body of an `async with` runs; freed on every exit.

        Entering raises:
            Overloaded: the queue is full.
            WorkerUnavailable: waited longer than the queue's time.
            DeadlineExceeded: waited longer than a request may take.
        """
        # Places are only counted, so all requests share the one object.
        return self

    async def __aenter__(self) -> None:
        if self._max_running and self.running >= self._max_running:
            await self._wait()
        else:
            self.running += 1

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give a place back: to the first in the queue, if there is one."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1

    def refuse_waiting(self, error: SmgError) -> None:
        """End the wait of everybody in the queue with an error."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(error)

    async def _wait(self) -> None:
        if len(self._waiting) >= self._queue_size:
            raise Overloaded(
                f"{self.running} requests run and {len(self._waiting)} wait; no more are taken now",
                code="admission_queue_full",
                retry_after_s=RETRY_AFTER_S,
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
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
