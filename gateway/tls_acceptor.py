"""Accepts connections for TLS: looks at the first byte, then shakes hands with the certificate that is valid now.

A client that speaks plain HTTP gets told so instead of a closed connection. Whoever says nothing, or does not come to
an end, is waited for a bounded time, and only so many at once are waited for: then the one that came first is closed,
since a client that means it is done in a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, cast

from gateway.head import whole_answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# The first byte of a TLS connection: a record of the kind "handshake" (RFC 8446, section 5.1).
_HANDSHAKE = b"\x16"
_REFUSAL = whole_answer(400, "this port speaks HTTPS; plain HTTP was sent to it\n")
# Accepted in one turn of the loop, and waited for at a time.
_PER_TURN = 64
MAX_HANDSHAKES = 1024
# Shortest time between two lines about too many of them.
_COMPLAINT_S = 60.0
# Pause when the process has no file descriptors left.
_EXHAUSTED_S = 1.0
# Time for a refused client to read why.
_FAREWELL_S = 2.0


class TlsAcceptor:
    """Accepts on one socket until closed. It owns the socket."""

    def __init__(
        self,
        bound: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        handshake_s: float,
        farewell_s: float,
    ) -> None:
        """Start.

        Args:
            bound: listens already, does not block.
            make_protocol: makes the protocol of one connection.
            context: the context that is valid now.
            handshake_s: longest time from the connection to its agreement on encryption.
            farewell_s: longest time for a client to read the end of what it gets, and to agree to the end.
        """
        self._socket = bound
        self._make_protocol = make_protocol
        self._context = context
        self._handshake_s = handshake_s
        self._farewell_s = farewell_s
        self._loop = asyncio.get_running_loop()
        # In the order they came; and those that were given up, while they end.
        self._tasks: dict[asyncio.Task[None], _Arrival] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._complained_at = -_COMPLAINT_S
        self._is_listening = self._is_closed = False
        self._listen()

    def close(self) -> None:
        """Accept nothing more; connections that have not agreed on encryption yet are closed."""
        if self._is_closed:
            return
        self._pause()
        self._is_closed = True
        while self._tasks:
            self._give_up_oldest()
        self._socket.close()

    def _listen(self) -> None:
        if not (self._is_listening or self._is_closed):
            self._loop.add_reader(self._socket, self._accept)
            self._is_listening = True

    def _pause(self) -> None:
        if self._is_listening:
            self._loop.remove_reader(self._socket)
            self._is_listening = False

    def _accept(self) -> None:
        for _ in range(_PER_TURN):
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept connections: %s", error)  # noqa: TRY400 - the trace would tell nothing
                self._pause()
                self._loop.call_later(_EXHAUSTED_S, self._listen)
                return
            if len(self._tasks) >= MAX_HANDSHAKES:
                self._complain()
                self._give_up_oldest()
            arrival = _Arrival(client)
            task = self._loop.create_task(self._admit(arrival))
            self._tasks[task] = arrival
            # A task that is cancelled before its first step never runs: what it has to close is closed by its end.
            task.add_done_callback(arrival.ended)
            task.add_done_callback(self._ended)

    def _give_up_oldest(self) -> None:
        task = next(iter(self._tasks))
        del self._tasks[task]
        self._ending.add(task)
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._ending.discard(task)

    def _complain(self) -> None:
        now = self._loop.time()
        if now - self._complained_at >= _COMPLAINT_S:
            self._complained_at = now
            logger.warning(
                "more than %d clients at once do not come to an agreement on TLS; the first of them are closed",
                MAX_HANDSHAKES,
            )

    async def _admit(self, arrival: _Arrival) -> None:
        """Bring one connection to its protocol, or leave it to be closed."""
        client = arrival.socket
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._handshake_s):
                await self._readable(client)
                first = client.recv(1, socket.MSG_PEEK)
            if first == _HANDSHAKE:
                arrival.is_handed_on = True
                await self._loop.connect_accepted_socket(
                    self._make_protocol,
                    client,
                    ssl=self._context(),
                    ssl_handshake_timeout=self._handshake_s,
                    ssl_shutdown_timeout=self._farewell_s,
                )
            elif first:
                arrival.is_handed_on = True
                await self._loop.connect_accepted_socket(_Refusal, client)
        except (OSError, TimeoutError) as error:
            # No certificate where one is wanted, an old version, a port scan: the client's own doing.
            logger.debug("a client did not agree on TLS: %s", error or "no answer in time")

    async def _readable(self, client: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_reader(client, wake)
        try:
            await ready
        finally:
            self._loop.remove_reader(client)


class _Arrival:
    """A connection that has been accepted.

    Attributes:
        socket: does not block.
        is_handed_on: a transport has it, and closes it.
    """

    __slots__ = ("socket", "is_handed_on")

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.is_handed_on = False

    def ended(self, _: object) -> None:
        """Nobody brings it any further."""
        if not self.is_handed_on:
            self.socket.close()


class _Refusal(asyncio.Protocol):
    """Tells a client that this port wants TLS. What it sends is read past, so that it can read the answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer and close, at the latest after a while."""
        plain = cast("asyncio.Transport", transport)
        plain.write(_REFUSAL)
        with contextlib.suppress(OSError, NotImplementedError):
            plain.write_eof()
        asyncio.get_running_loop().call_later(_FAREWELL_S, plain.abort)

    def data_received(self, data: bytes) -> None:
        """Ignore the request."""
