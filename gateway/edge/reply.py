"""One answer that leaves as gRPC messages: handlers write to it, the call's own task takes what was written.

What is written while a message is on its way is merged into the next one, up to a bound; a client that stays behind it
is dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.head import Header
    from smg.pipelines.meter import RequestMeter

# What a message holds at most. Envoy refuses messages longer than its `max_response_body_size`, and keeps one whole.
MESSAGE_BYTES = 256 * 1024
# A client that has this much left to read should not be written more, if there is a choice.
FULL_BYTES = 64 * 1024


class EdgeReply:
    """A Reply that a call drains.

    Attributes:
        headers: as the handler has set them.
        status: HTTP status; 0 until it is set.
        is_started: the handler has set status and headers.
        is_ended: nothing more is written.
        is_dropped: nobody wants the rest.
        is_too_slow: because the client did not read.
        meter: what is measured of the request.
    """

    __slots__ = (
        "headers", "extra_headers", "status", "is_started", "is_ended", "is_dropped", "is_too_slow", "idle_ticks",
        "meter",
        "_takes_body", "_max_held_bytes", "_on_drop", "_held", "_held_bytes", "_is_writing", "_waiter", "_drained", "_waiting",
    )  # fmt: skip

    def __init__(self, max_held_bytes: int, on_drop: Callable[[], None], *, takes_body: bool) -> None:
        """Args: takes_body: the request was not HEAD."""
        self.headers: Sequence[Header] = ()
        self.extra_headers: Sequence[Header] = ()
        self.status = self.idle_ticks = 0
        self.is_started = self.is_ended = self.is_dropped = self.is_too_slow = False
        self.meter: RequestMeter | None = None
        self._takes_body = takes_body
        self._max_held_bytes = max_held_bytes
        self._on_drop = on_drop
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_writing = False
        # What the call waits on, and what the handler waits on.
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._waiting: list[Callable[[], None]] = []

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Set status and headers; they leave with the first body bytes.

        Raises:
            ValueError: a header holds a line break.
        """
        if any(b"\n" in value or b"\r" in value for header in headers for value in header):
            raise ValueError(f"a header of the answer holds a line break: {headers!r}")
        self.headers = [*headers, *self.extra_headers]
        self.is_started = True
        self.status = status

    def write(self, data: bytes) -> None:
        """Send more of the body; held back while a message is on its way."""
        self.idle_ticks = 0
        if self.is_ended or not self._takes_body or not data:
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._is_writing and self._held_bytes > self._max_held_bytes:
            self.is_too_slow = True
            self.close()
            self._on_drop()
        else:
            _wake(self._waiter)

    def end(self, data: bytes = b"") -> None:
        """Send the last of the body, however long it is: it is here already."""
        if self.is_ended:
            return
        self.is_ended = True
        if self._takes_body and data:
            self._held.append(data)
            self._held_bytes += len(data)
        _wake(self._waiter)

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client has not taken what was written."""
        if self.is_ended or not self._is_writing or self._held_bytes < FULL_BYTES:
            return False
        self._waiting.append(go_on)
        return True

    async def drained(self, timeout_s: float) -> None:
        """Wait until gRPC has taken everything, else drop the client."""
        if not self._held and not self._is_writing:
            return
        self._drained = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained
        except TimeoutError:
            self.is_too_slow = True
            self.close()

    def forget(self) -> None:
        """Let go of whom to tell; nobody is left to be told."""
        self._on_drop = _nobody

    def close(self) -> None:
        """Forget the client; nothing more is sent."""
        self.is_ended = self.is_dropped = True
        self._held.clear()
        self._held_bytes = 0
        self._tell()
        _wake(self._waiter)
        _wake(self._drained)

    async def something(self) -> bytes:
        """Wait for the next message's bytes; none are left when it returns b""."""
        self._is_writing = False
        while not self._held:
            _wake(self._drained)
            if self.is_ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._is_writing = True
        data = self._taken()
        if self._held_bytes < FULL_BYTES:
            self._tell()
        return data

    def _taken(self) -> bytes:
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        rest = data[MESSAGE_BYTES:]
        if rest:
            self._held.append(rest)
        self._held_bytes = len(rest)
        return data[:MESSAGE_BYTES] if rest else data

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _nobody() -> None:
    """Nobody is left to be told."""
