"""Runs an ASGI application on a socket with uvicorn, and stops it in order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from gateway.one_write import OneWriteProtocol
from smg.errors import PortTaken

if TYPE_CHECKING:
    from collections.abc import Generator

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes a free one.

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
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    bound.setblocking(False)
    return bound


class _Server(uvicorn.Server):
    """uvicorn's server without signal handlers: the process has its own order of stopping."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class HttpListener:
    """One ASGI application on one socket."""

    def __init__(self, app: Any, bound: socket.socket, idle_connection_s: float) -> None:
        """Args: idle_connection_s is how long a connection without a request is kept."""
        config = uvicorn.Config(
            app,
            http=OneWriteProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            # Nothing here reads the client address; without this every request passes a layer that rewrites it.
            proxy_headers=False,
            timeout_keep_alive=max(1, round(idle_connection_s)),
            backlog=BACKLOG,
        )
        self._config = config
        self._server = _Server(config)
        self._socket = bound

    async def run(self) -> None:
        """Serve until stopped; on cancellation, cut every connection."""
        await self._server.serve(sockets=[self._socket])

    async def wait_started(self) -> None:
        """Return when connections are accepted."""
        while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)

    def stop(self, grace_s: float) -> None:
        """Accept nothing new, let running requests end, and make run() return after the grace period at most."""
        self._config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.should_exit = True

    def cut(self) -> None:
        """Stop waiting for running requests."""
        self._server.force_exit = True
        for task in self._server.server_state.tasks:
            task.cancel()
