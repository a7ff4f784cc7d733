"""One HTTP/1.1 connection: requests in, one after the other, and their answers out.

A handler starts when its whole request is here; what can be refused by the head alone is refused before. The client
has a bounded time for each request, and to read the end of what it gets when the connection closes. Why this is not
a server off the shelf: docs/adr/0004-own-http-server.md.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from gateway.arriving import RequestReader
from gateway.half_closed import LeaveWatch
from gateway.head import CONTINUE
from gateway.refusal import refusal
from gateway.reply import HttpReply
from smg.errors import RequestTimeout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gateway.app import GatewayApp
    from gateway.arriving import ArrivingRequest
    from smg.errors import SmgError

# Looks at a connection's clock within the time that it may stand still.
TICKS_OF_IDLE = 16


class HttpConnection(RequestReader):
    """One connection. The listener calls `tick` TICKS_OF_IDLE times within idle_s.

    Attributes:
        send: writes to the client at once.
        is_full: the client does not read; nothing should be sent now.
        keeps_alive: another request may follow the current one.
        may_chunk: the client understands chunked bodies.
        takes_body: the current request is not HEAD.
    """

    def __init__(
        self,
        app: GatewayApp,
        loop: asyncio.AbstractEventLoop,
        idle_s: float,
        on_open: Callable[[HttpConnection], None],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        super().__init__()
        self._app = app
        self._loop = loop
        self._idle_s = idle_s
        self._on_open = on_open
        self._on_lost = on_lost
        self._transport = cast("asyncio.Transport", None)
        # The request whose turn it is, and those that have come behind it.
        self._current: ArrivingRequest | None = None
        self._reply: HttpReply | None = None
        self._queue: deque[ArrivingRequest] = deque()
        self._is_stopping = False
        # Set when the client sends no more and still waits.
        self._leave_watch: LeaveWatch | None = None
        self.send: Callable[[bytes], None] = _nowhere
        self.is_full = False
        self.keeps_alive = self.may_chunk = self.takes_body = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self._transport = cast("asyncio.Transport", transport)
        self.send = self._transport.write
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Forget the connection; whoever answers on it is told."""
        self._on_lost(self)
        if self._leave_watch is not None:
            self._leave_watch.stop()
        current, self._current = self._current, None
        self._reply = None
        self._queue.clear()
        if current is not None and current.exchange is not None:
            current.exchange.left()
        # The parser knows us: a cycle, for which memory would wait.
        self._parser = None

    def eof_received(self) -> bool:
        """The client sends no more: answer what is here whole, unless the client turns out to have left.

        Returns: False to close the connection.
        """
        current, transport = self._current, self._transport
        if current is None or not current.is_complete or transport.is_closing():
            return False
        # TLS knows no half-closed connections; and HTTP/1.0 has nothing that could be written to see who is there.
        if current.is_http_1_0 or transport.get_extra_info("sslcontext") is not None:
            return False
        self.keeps_alive = self.keeps_alive and bool(self._queue)
        connected = transport.get_extra_info("socket")
        self._leave_watch = LeaveWatch(self._loop, connected, self._probe, self.abort)
        return True

    def pause_writing(self) -> None:
        """The client does not read."""
        self.is_full = True
        if self._reply is not None:
            self._reply.pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_full = False
        if self._reply is not None:
            self._reply.resume()

    def new_reply(self, max_held_bytes: int, on_drop: Callable[[], None]) -> HttpReply:
        """Where the current request's answer is written."""
        reply = self._reply = HttpReply(self, max_held_bytes, on_drop)
        return reply

    def answered(self, *, is_whole: bool) -> None:
        """The last byte of the current answer was sent; an answer that is not whole must be followed by nothing."""
        current = self._current
        if not (is_whole and self.keeps_alive):
            self.close()
        elif current is not None:
            current.is_answered = True
            if current.is_complete:
                self._next()

    def client(self) -> str:
        """The address of the other side; empty when it is not known."""
        peer: tuple[str, int] | None = self._transport.get_extra_info("peername")
        if not peer:
            return ""
        return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"

    def close(self) -> None:
        """Close when the client has read what was written, or has had its time."""
        self._idle_ticks = 0
        self._transport.close()

    def is_closing(self) -> bool:
        """Nothing more is read or answered."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def _probe(self) -> None:
        """Write something without a meaning, so that the system of a client that has left protests."""
        exchange = self._current.exchange if self._current is not None else None
        if exchange is None or exchange.reply.is_ended:
            return
        if exchange.reply.is_started:
            exchange.write_comment()
        else:
            # Every client of HTTP/1.1 takes it, asked for or not (RFC 9110, section 15.2).
            self.send(CONTINUE)

    def stop(self) -> None:
        """Close when the current request is answered."""
        self._is_stopping = True
        self.keeps_alive = False
        if self._current is None and not self._queue:
            self.close()

    def tick(self) -> None:
        """Count the time in which the client is waited for, and end what had enough of it."""
        is_closing = self._transport.is_closing()
        if not is_closing and self._is_working():
            return
        self._idle_ticks += 1
        if self._idle_ticks <= TICKS_OF_IDLE:
            return
        if is_closing:
            self.abort()
        elif self._is_in_head or self._current is not None:
            part = "head" if self._is_in_head else "body"
            self._refuse(
                RequestTimeout(
                    f"the request did not arrive: its {part} was not complete, and nothing came for {self._idle_s:g} s",
                    code="request_timeout" if self._is_in_head else "request_body_stalled",
                )
            )
        else:
            self.close()

    def _is_working(self) -> bool:
        """The client is not who makes it wait."""
        current = self._current
        if current is None:
            return bool(self._queue)
        return current.is_complete and current.exchange is not None and not current.exchange.reply.is_ended

    def _head_arrived(self, request: ArrivingRequest) -> None:
        if self._transport.is_closing():
            self._arriving = None
        elif self._current is None and not self._queue:
            self._begin(request)
        else:
            self._queue.append(request)
            self._transport.pause_reading()

    def _body_arrived(self, request: ArrivingRequest, body: bytes) -> None:
        exchange = request.exchange
        if exchange is not None and exchange.reply.is_ended:
            # Refused already; the rest is read past.
            return
        request.pieces.append(body)
        request.size += len(body)
        if exchange is not None and request.size > exchange.max_body_bytes:
            request.pieces.clear()
            exchange.refuse_body()

    def _all_arrived(self, request: ArrivingRequest) -> None:
        exchange = request.exchange
        if exchange is None:
            return
        if not exchange.reply.is_ended:
            exchange.start(request.body())
        elif request.is_answered:
            self._next()

    def _begin(self, request: ArrivingRequest) -> None:
        """It is this request's turn."""
        self._current = request
        is_last = self._is_stopping or (self._leave_watch is not None and not self._queue)
        self.keeps_alive = request.keeps_alive and not is_last
        self.may_chunk = not request.is_http_1_0
        self.takes_body = request.method != "HEAD"
        exchange = request.exchange = self._app.begin(request, self)
        if exchange.reply.is_ended:
            return
        if request.size > exchange.max_body_bytes:
            exchange.refuse_body()
        elif request.is_complete:
            exchange.start(request.body())
        elif request.headers.get(b"expect", b"").lower() == b"100-continue":
            self.send(CONTINUE)

    def _next(self) -> None:
        """The current request is answered, and read to its end."""
        self._current = self._reply = None
        self._idle_ticks = 0
        if self._queue:
            # Not at once: thousands of short answers would call each other.
            self._loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        if self._queue and not self._transport.is_closing():
            request = self._queue.popleft()
            if not self._queue:
                self._transport.resume_reading()
            self._begin(request)

    def _refuse(self, error: SmgError) -> None:
        """Answer if no other answer is under way, and close."""
        if self._transport.is_closing():
            return
        current = self._current
        self.keeps_alive = False
        if current is None:
            if not self._queue:
                self.send(refusal(self._app, error))
        elif (
            current.exchange is not None and not current.is_complete and not current.exchange.reply.is_started
        ):
            current.exchange.refuse(error)
        self.close()


def _nowhere(data: bytes) -> None:
    """There is no connection yet."""
