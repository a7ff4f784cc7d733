"""Sends the head of an HTTP answer together with the first bytes of its body: one system call, not two.

uvicorn writes the head as soon as it is known, and uvloop hands every write to the kernel at once; a write costs as
much as everything else of a token. An application behind this sends its head right before its first body bytes.

The protocol also bounds what uvicorn does not: how long a request may take to arrive, and how long its head may be.
It ignores `Upgrade`, as RFC 9110 section 7.8 allows: such a request is served as any other, with its body.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

MAX_HEAD_BYTES = 65536
MAX_HEADERS = 256
ABORT = "smg.abort"
"""The ASGI extension that cuts the connection at once; closing waits until the client has read everything."""

_INTERIM = b"HTTP/1.1 100 "
_FRAMING = (b"content-length", b"transfer-encoding", b"connection")
_HEAD_TOO_LONG = (
    f"the request's head is too long: {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers are allowed\n"
)


class HeadHolder:
    """A transport that keeps the next write back and joins it to the one after. Everything else goes through.

    Attributes:
        write: writes, keeps back, or joins, depending on the state; with nothing kept back it is the transport's own.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, linger_s: float
    ) -> None:
        """Args: linger_s is how long a closing connection waits for a client to read the rest."""
        self._transport = transport
        self._loop = loop
        self._linger_s = linger_s
        self._linger_timer: asyncio.TimerHandle | None = None
        self._head = b""
        self.write: Callable[[bytes], None] = transport.write

    def expect_head(self) -> None:
        """The next write is the head of an answer."""
        self.write = self._hold

    def flush(self) -> None:
        """Write what is kept back: the answer has no body."""
        self.write = self._transport.write
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Write what is kept back and close, when the client has read it or has had its time."""
        self.flush()
        self._transport.close()
        if self._linger_timer is None:
            self._linger_timer = self._loop.call_later(self._linger_s, self._transport.abort)

    def forget(self) -> None:
        """The connection has ended: nothing is waited for."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()

    def _hold(self, data: bytes) -> None:
        if data.startswith(_INTERIM):
            self._transport.write(data)
            return
        self._head = data
        self.write = self._join

    def _join(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.write = self._transport.write
        self._transport.write(head + data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Arrived(Enum):
    """How much of a request is here."""

    NOTHING = auto()
    HEAD_BEGUN = auto()
    HEAD = auto()
    ALL = auto()


class _HeadTooLongError(Exception):
    """Stops the parser."""


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a transport that joins head and body, with bounds on what a request may take."""

    transport: Any
    cycle: Any

    def connection_made(self, transport: Any) -> None:
        """Put the holder between the protocol and the connection, and wait for a request."""
        holder = HeadHolder(transport, self.loop, self.timeout_keep_alive)
        super().connection_made(holder)  # pyright: ignore[reportArgumentType] - the same methods
        self._arrived = _Arrived.NOTHING
        self._is_replay = False
        self._head_bytes = 0
        self._is_head_too_long = False
        # Bytes since the parser last told of something; it keeps what it does not tell of.
        self._untold_bytes = 0
        self._extensions = {ABORT: self._abort}
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._disarm()
        super().connection_lost(exc)
        self.transport.forget()

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse what is malformed or too long."""
        self._unset_keepalive_if_required()
        self._untold_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if self._is_head_too_long:
                self._refuse(431, _HEAD_TOO_LONG)
                return
            self.logger.warning("a connection sent what is not HTTP")
            self._refuse(400, "this is not an HTTP request\n")
            return
        if self._untold_bytes > MAX_HEAD_BYTES:
            self._refuse(431, _HEAD_TOO_LONG)
        else:
            self._watch_arrival()

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_replay:
            return
        self._arrived = _Arrived.HEAD_BEGUN
        self._head_bytes = self._untold_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """More of the path."""
        if not self._is_replay:
            self._count_head(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which counts as one."""
        if self._is_replay:
            return
        self._count_head(len(name) + len(value) + 4)
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._stop_parser()

    def on_headers_complete(self) -> None:
        """The application starts now."""
        if self._is_replay:
            return
        self._arrived = _Arrived.HEAD
        self._untold_bytes = 0
        self.scope["extensions"] = self._extensions  # pyright: ignore[reportGeneralTypeIssues] - our extension
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """More of the body."""
        self._untold_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here, unless the parser takes its body for another protocol."""
        if self.parser.should_upgrade():
            return
        self._arrived = _Arrived.ALL
        self._untold_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer without a body, as to HEAD, ends here."""
        self.transport.flush()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        # Called once per request, when it is its turn on the connection.
        self.transport.expect_head()
        super()._start_asgi_task(cycle, app)

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._read_on_as_http()
            else:
                return

    def _read_on_as_http(self) -> None:
        """Put a new parser where the old one stopped, behind a head that asked for another protocol."""
        head = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING)
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn sets it for the first parser.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_replay = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % head)
        finally:
            self._is_replay = False

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._stop_parser()

    def _stop_parser(self) -> None:
        self._is_head_too_long = True
        raise _HeadTooLongError

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_arrival(self) -> None:
        """A head has one bound as a whole; a body has it again with each piece."""
        if self._arrived is _Arrived.ALL and self._is_answering():
            self._disarm()
        elif self._arrived is _Arrived.HEAD:
            self._disarm()
            self._arm()
        elif self._arrival_timer is None:
            self._arm()

    def _arm(self) -> None:
        self._arrival_timer = self.loop.call_later(self.timeout_keep_alive, self._not_arrived)

    def _disarm(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _not_arrived(self) -> None:
        self._arrival_timer = None
        if self.transport.is_closing():
            return
        is_behind_another = self._arrived is not _Arrived.HEAD and self._is_answering()
        if is_behind_another or self.flow.read_paused:
            # The client is not who makes it wait.
            self._arm()
        elif self._arrived in {_Arrived.HEAD_BEGUN, _Arrived.HEAD}:
            self._refuse(408, f"the request did not arrive: nothing for {self.timeout_keep_alive} s\n")
        else:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """Answer if no other answer is under way, and close."""
        if self._arrived is _Arrived.HEAD:
            is_free = not self.cycle.response_started and not self.pipeline
        else:
            is_free = not self._is_answering()
        if is_free:
            body = text.encode("ascii")
            head = (
                b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.transport.close()

    def _abort(self) -> None:
        if self.cycle is not None:
            # Nothing more is expected of the application.
            self.cycle.disconnected = True
        self.transport.abort()
