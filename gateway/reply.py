"""One HTTP answer, pushed from callbacks: what a handler writes is on the socket when write() returns.

Head and first body bytes leave in one write. While the client's socket is full, what is written is held back and
merged, up to a bound; a client that stays behind it is dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from gateway.head import CHUNKED, CLOSE, answer_head, content_length, header_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.head import Header
    from smg.pipelines.meter import RequestMeter

_LAST_CHUNK = b"0\r\n\r\n"
# A body of more bytes is not copied to stand behind its head: that would take longer than another write.
SPLIT_BYTES = 256 * 1024
_BODILESS = frozenset((204, 304))


class Reply(Protocol):
    """What a handler writes to, over HTTP and behind Envoy alike. Called on the event loop; nothing blocks."""

    is_started: bool
    idle_ticks: int
    """Set to zero by every write; counted up by KeepAlive."""
    meter: RequestMeter | None
    """What is measured of the request: set by handlers that ask a model, read when the answer has ended."""

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Set status and headers, names in lower case; they leave with the first body bytes."""
        ...

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        ...

    def end(self, data: bytes = b"") -> None:
        """Send the last of the body. Writes after it are dropped."""
        ...

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client has not taken what was written; go_on is called once when it has, or when it is given up."""
        ...


class ExchangeReply(Reply, Protocol):
    """A Reply, and what the exchange that owns it has to know of it."""

    status: int
    is_ended: bool
    is_too_slow: bool
    extra_headers: Sequence[Header]
    """Headers of the answer beside those that its handler sets."""

    def close(self) -> None:
        """Forget the client; nothing more is sent."""
        ...

    async def drained(self, timeout_s: float) -> None:
        """Wait until the client has taken what was held back, else drop it."""
        ...

    def forget(self) -> None:
        """Let go of whom to tell that the client is too slow."""
        ...


class Outlet(Protocol):
    """The connection, as far as an answer sees it.

    Attributes:
        send: writes to the client at once.
        is_full: the client does not read; nothing should be sent now.
        keeps_alive: another request may follow on the connection.
        may_chunk: the client understands chunked bodies.
        takes_body: the request was not HEAD.
    """

    send: Callable[[bytes], None]
    is_full: bool
    keeps_alive: bool
    may_chunk: bool
    takes_body: bool

    def answered(self, *, is_whole: bool) -> None:
        """The last byte of the answer was sent. One that is not whole must be followed by nothing."""
        ...


class HttpReply:
    """A Reply on an HTTP/1.1 connection.

    Args:
        outlet: the connection.
        max_held_bytes: most bytes to hold back for a slow client before it is dropped.
        on_drop: called once when the client is too slow.
    """

    __slots__ = (
        "status", "extra_headers", "is_started", "is_ended", "is_dropped", "is_too_slow", "idle_ticks",
        "meter",
        "_outlet", "_send", "_max_held_bytes", "_on_drop", "_lines", "_is_flowing", "_is_chunked", "_missing",
        "_held", "_held_bytes", "_drained", "_waiting",
    )  # fmt: skip

    def __init__(self, outlet: Outlet, max_held_bytes: int, on_drop: Callable[[], None]) -> None:
        self.status = 0
        self.extra_headers: Sequence[Header] = ()
        self.is_started = self.is_ended = self.is_dropped = self.is_too_slow = False
        self.idle_ticks = 0
        self.meter: RequestMeter | None = None
        self._outlet = outlet
        self._send = outlet.send
        self._max_held_bytes = max_held_bytes
        self._on_drop = on_drop
        self._lines: bytes | None = None
        # A chunk may be written at once: the head is out, the end is not, and the client reads.
        self._is_flowing = False
        self._is_chunked = False
        self._missing: int | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self._waiting: list[Callable[[], None]] = []

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Set status and headers; they leave with the first body bytes.

        Raises:
            ValueError: a header holds a line break.
        """
        self._lines = header_lines([*headers, *self.extra_headers] if self.extra_headers else headers)
        self._missing = content_length(headers)
        self.is_started = True
        self.status = status

    def write(self, data: bytes) -> None:
        """Send more of the body; held back while the client is slow."""
        self.idle_ticks = 0
        if self._is_flowing and data:
            self._send(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._put(data, ends=False)

    def end(self, data: bytes = b"") -> None:
        """Send the last of the body."""
        self._put(data, ends=True)

    def pause(self) -> None:
        """The client's socket is full."""
        self._is_flowing = False

    def resume(self) -> None:
        """The client reads again: it gets what was held back."""
        if self.is_dropped:
            return
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._out(data, ends=self.is_ended)
        else:
            self._is_flowing = self._is_chunked and self._lines is None and not self.is_ended
        if not self._held:
            self._wake()

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client's socket is full."""
        if self.is_ended or not self._outlet.is_full:
            return False
        self._waiting.append(go_on)
        return True

    async def drained(self, timeout_s: float) -> None:
        """Wait until the socket has taken what was held back, else drop the client."""
        if not self._held:
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
        self._is_flowing = False
        self._held.clear()
        self._wake()

    def _put(self, data: bytes, *, ends: bool) -> None:
        if self.is_ended:
            return
        self.is_ended = ends
        if self._outlet.is_full:
            self._hold(data)
        else:
            self._out(data, ends=ends)

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > self._max_held_bytes:
            self.is_too_slow = True
            self.close()
            self._on_drop()

    def _out(self, data: bytes, *, ends: bool) -> None:
        head = self._head(self._lines) if self._lines is not None else b""
        if self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            if ends:
                body += _LAST_CHUNK
        elif self._outlet.takes_body and self.status not in _BODILESS:
            body = data
            if self._missing is not None:
                self._missing -= len(data)
        else:
            body, self._missing = b"", None
        self._is_flowing = self._is_chunked and not ends and not self._outlet.is_full
        if head and len(body) > SPLIT_BYTES:
            self._send(head)
            head = b""
        if head or body:
            # This may find the socket full: pause() comes before it returns.
            self._send(head + body if head else body)
        if ends:
            self._outlet.answered(is_whole=not self._missing)

    def _head(self, lines: bytes) -> bytes:
        self._lines = None
        outlet, framing = self._outlet, b""
        if self._missing is None and outlet.takes_body and self.status not in _BODILESS:
            self._is_chunked = outlet.may_chunk
            if self._is_chunked:
                framing = CHUNKED
            else:
                # The end of the connection is the end of the body.
                outlet.keeps_alive = False
        if not outlet.keeps_alive:
            framing += CLOSE
        return answer_head(self.status, lines, framing)

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


def _nobody() -> None:
    """Is told when nobody else is."""
