"""Keeps the events of a response that runs in the background, for whoever follows it now or later."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.responses.events import Outlet


class EventLog:
    """An Outlet that remembers, up to a bound; beyond it the oldest events are forgotten.

    Attributes:
        ended: set when nothing more comes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.ended = asyncio.Event()
        self._max_bytes = max_bytes
        self._events: deque[tuple[str, int, bytes]] = deque()
        self._size = 0
        self._followers: list[Outlet] = []

    def event(self, kind: str, number: int, data: bytes) -> None:
        """Keep an event, and pass it on."""
        self._events.append((kind, number, data))
        self._size += len(data)
        while self._size > self._max_bytes and len(self._events) > 1:
            self._size -= len(self._events.popleft()[2])
        for follower in self._followers:
            follower.event(kind, number, data)

    def flush(self) -> None:
        """Let followers send what they have."""
        for follower in self._followers:
            follower.flush()

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """Never: the response does not wait for those who follow it."""
        del go_on
        return False

    def close(self) -> None:
        """Nothing more comes."""
        self.flush()
        self.ended.set()

    async def follow(self, outlet: Outlet, after: int = -1) -> None:
        """Pass on all events behind a number, those that come as well. Returns at the end; cancelling stops it.

        Raises:
            InvalidRequest: the next event is not kept any more.
        """
        first = self._events[0][1] if self._events else 0
        if after + 1 < first:
            raise InvalidRequest(
                f"starting_after is {after}; events before {first} are not kept any more",
                param="starting_after",
            )
        for kind, number, data in self._events:
            if number > after:
                outlet.event(kind, number, data)
        outlet.flush()
        self._followers.append(outlet)
        try:
            await self.ended.wait()
        finally:
            self._followers.remove(outlet)
