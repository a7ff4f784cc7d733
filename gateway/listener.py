"""Accepts connections on a socket for the application, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from gateway.connection import TICKS_OF_IDLE, HttpConnection
from gateway.tls_acceptor import TlsAcceptor
from smg.errors import PortTaken

if TYPE_CHECKING:
    from gateway.app import GatewayApp
    from smg.tls.listening import ListeningTls
    from smg.tls.reloading import Reloading

logger = logging.getLogger(__name__)

BACKLOG = 2048
# The clock of connections ticks TICKS_OF_IDLE times in it.
SHORTEST_IDLE_S = 0.25
# Looks at connections that close, while the listener stops, and how many of them find nothing before they are cut.
_LOOK_S = 0.25
_FAREWELL_LOOKS = 8


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Listen on an address; port 0 takes a free one.

    Args:
        host: address.
        port: port.
        is_shared: other processes listen there, too, and the system spreads connections over them.

    Raises:
        PortTaken: with the address and the system's reason.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    # Named, not left to the system: asyncio switches Nagle's algorithm off only where it reads TCP here.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    bound.setblocking(False)
    return bound


class HttpListener:
    """One application on one socket."""

    def __init__(
        self,
        app: GatewayApp,
        bound: socket.socket,
        idle_connection_s: float,
        tls: Reloading[ListeningTls] | None = None,
        handshake_s: float = 10.0,
    ) -> None:
        """Set up.

        Args:
            app: answers.
            bound: listens already.
            idle_connection_s: how long a connection without a request is kept.
            tls: None for plain HTTP.
            handshake_s: longest time that a client may take to agree on encryption.
        """
        self._tls = tls
        self._handshake_s = handshake_s
        self._app = app
        self._socket = bound
        self._idle_s = max(SHORTEST_IDLE_S, idle_connection_s)
        self._connections: set[HttpConnection] = set()
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._empty = asyncio.Event()
        self._grace_s = 0.0

    async def run(self) -> None:
        """Serve until stopped, and let running requests end; on cancellation, cut every connection."""
        server = await self._open()
        ticking = asyncio.create_task(self._tick())
        self._started.set()
        try:
            await self._stopping.wait()
            server.close()
            await self._drain()
        finally:
            ticking.cancel()
            server.close()
            await self._cut()

    async def _open(self) -> asyncio.Server | TlsAcceptor:
        loop, tls = asyncio.get_running_loop(), self._tls

        def connection() -> HttpConnection:
            return HttpConnection(self._app, loop, self._idle_s, self._connections.add, self._lost)

        if tls is None:
            return await loop.create_server(connection, sock=self._socket, backlog=BACKLOG)
        return TlsAcceptor(
            self._socket, connection, lambda: tls.value.context, self._handshake_s, self._idle_s
        )

    async def wait_started(self) -> None:
        """Return when connections are accepted."""
        await self._started.wait()

    def stop(self, grace_s: float) -> None:
        """Accept nothing new, let running requests end, and make run() return after the grace period at most."""
        self._grace_s = grace_s
        self._stopping.set()

    def _lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    async def _tick(self) -> None:
        """One clock for all connections: none needs a timer of its own."""
        while True:
            await asyncio.sleep(self._idle_s / TICKS_OF_IDLE)
            for connection in tuple(self._connections):
                connection.tick()

    async def _drain(self) -> None:
        for connection in tuple(self._connections):
            connection.stop()
        try:
            async with asyncio.timeout(self._grace_s):
                await self._wait_empty()
        except TimeoutError:
            logger.error(  # noqa: TRY400 - the trace would tell nothing
                "%d requests were still running after %g s and are ended", len(self._app.tasks), self._grace_s
            )

    async def _wait_empty(self) -> None:
        """Wait for the last connection to end. One in TLS ends when the client agrees, who may not care: it gets a moment."""
        quiet_looks = 0
        while self._connections and quiet_looks < _FAREWELL_LOOKS:
            self._empty.clear()
            try:
                async with asyncio.timeout(None if self._tls is None else _LOOK_S):
                    await self._empty.wait()
            except TimeoutError:
                is_quiet = all(connection.is_closing() for connection in self._connections)
                quiet_looks = quiet_looks + 1 if is_quiet and not self._app.tasks else 0

    async def _cut(self) -> None:
        """End what is left."""
        for connection in tuple(self._connections):
            connection.abort()
        tasks = tuple(self._app.tasks)
        if tasks:
            await asyncio.wait(tasks)
