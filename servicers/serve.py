"""Puts an engine behind a gRPC server: health, reflection, and an orderly end.

The port is bound before the engine loads, so that a health check is answered (NOT_SERVING) from the first moment on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, cast

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from servicers.limits import SessionLimits
from servicers.session import SERVICE, EngineServicer
from servicers.tls import HANDSHAKE_S, server_credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.base import Engine
    from servicers.compat.servicer import SglangSchedulerServicer
    from servicers.tls import TlsFiles

_log = logging.getLogger(__name__)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Time for the last statuses to reach the routers.
_FAREWELL_S = 1.0
# Routers ping a silent connection every 20 s (smg/workers/options.py); more often than this is an abuse.
_SHORTEST_PING_MS = 5_000
_KEEPALIVE_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 10_000


class CannotListen(Exception):
    """The address is taken, or is none of this machine."""


class RunningServer:
    """A server that takes work. Stop it with `stop`."""

    def __init__(self, url: str, engine: Engine, server: grpc.aio.Server, parts: _Parts) -> None:
        self.url = url
        self.engine = engine
        self._server = server
        self._parts = parts
        self._loads = asyncio.get_running_loop().create_task(parts.servicer.push_loads())

    async def stop(self, grace_s: float) -> None:
        """Take no new work, let what runs end for at most `grace_s`, end the sessions, stop the engine."""
        await self._parts.say(_NOT_SERVING)
        await self._parts.drain(grace_s)
        self._loads.cancel()
        await asyncio.gather(self._loads, return_exceptions=True)
        await self._server.stop(_FAREWELL_S)
        await self.engine.stop()

    def cut(self) -> None:
        """End every session now: `stop` need not wait any more."""
        self._parts.cut()


class _Parts:
    """The services of one server."""

    def __init__(self, engine: Engine, limits: SessionLimits, *, speaks_sglang: bool) -> None:
        self.servicer = EngineServicer(engine, limits)
        self._compat: SglangSchedulerServicer | None = None
        if speaks_sglang:
            # Its protocol is another package's: loaded where it is wanted.
            from servicers.compat.servicer import SglangSchedulerServicer

            self._compat = SglangSchedulerServicer(engine, limits)
        # The stubs of grpcio-health-checking do not know its asyncio half.
        self.health: Any = cast("Any", health).aio.HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register them all."""
        self.servicer.add_to(server)
        if self._compat is not None:
            self._compat.add_to(server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        # Reflection looks a service up among the generated modules that are imported: the session imports ours.
        reflection.enable_server_reflection(names, server)

    async def open(self) -> None:
        """Take work from now on. The engine has started."""
        await self.servicer.open()
        if self._compat is not None:
            self._compat.open()

    async def drain(self, grace_s: float) -> None:
        """Take no new work, and wait for what runs for at most so long."""
        if self._compat is None:
            await self.servicer.drain(grace_s)
        else:
            await asyncio.gather(self.servicer.drain(grace_s), self._compat.drain(grace_s))
            self._compat.close()

    def cut(self) -> None:
        """End everything now."""
        self.servicer.cut()
        if self._compat is not None:
            self._compat.cut()

    async def say(self, status: int) -> None:
        """Report a health for the engine's service and for the server as a whole."""
        for name in (health.OVERALL_HEALTH, SERVICE):
            await self.health.set(name, status)


async def start_server(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: SessionLimits | None = None,
    tls: TlsFiles | None = None,
    speaks_sglang: bool = False,
) -> RunningServer:
    """Bind, start the engine, and serve.

    Args:
        engine: not started yet.
        host: address to listen on.
        port: 0 for a free one.
        limits: bounds of the sessions.
        tls: None for no encryption.
        speaks_sglang: SGLang's scheduler protocol is answered, too.

    Raises:
        CannotListen: the address cannot be bound.
        CannotStart: the engine cannot start, or a file for TLS cannot be used.
    """
    limits = limits or SessionLimits()
    server: grpc.aio.Server = cast("Any", grpc.aio).server(options=_options(limits))
    parts = _Parts(engine, limits, speaks_sglang=speaks_sglang)
    parts.add_to(server)
    bound_port = _bind(server, host, port, tls)
    await parts.say(_NOT_SERVING)
    await server.start()
    try:
        await engine.start()
        await parts.open()
    except BaseException:
        await server.stop(None)
        await engine.stop()
        raise
    await parts.say(_SERVING)
    return RunningServer(
        f"{'grpcs' if tls else 'grpc'}://{_host_in_url(host)}:{bound_port}", engine, server, parts
    )


async def serve_until_signal(
    engine: Engine,
    *,
    host: str,
    port: int,
    limits: SessionLimits,
    grace_s: float,
    on_ready: Callable[[str], None],
    tls: TlsFiles | None = None,
    speaks_sglang: bool = False,
) -> None:
    """Serve until SIGTERM, SIGINT or a hang-up, then drain. A second signal cuts the drain short.

    Raises:
        CannotListen: the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    starting = loop.create_task(
        start_server(engine, host=host, port=port, limits=limits, tls=tls, speaks_sglang=speaks_sglang)
    )

    def on_signal() -> None:
        if stopping.is_set() and starting.done():
            starting.result().cut()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup has a hang-up ignored, and that is to stay so.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)
    told_to_stop = loop.create_task(stopping.wait())
    try:
        await asyncio.wait((starting, told_to_stop), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        server = starting.result()
        on_ready(server.url)
        await told_to_stop
        _log.info("draining for at most %g s; another signal cuts it short", grace_s)
        await server.stop(grace_s)
    finally:
        told_to_stop.cancel()


def _bind(server: grpc.aio.Server, host: str, port: int, tls: TlsFiles | None) -> int:
    address = f"{_host_in_url(host)}:{port}"
    # Asked first, because gRPC writes lines of its own about it to stderr.
    reason = _why_not(host, port)
    if reason:
        raise CannotListen(f"cannot listen on {address}: {reason}")
    credentials = server_credentials(tls) if tls else None
    try:
        if credentials:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise CannotListen(f"cannot listen on {address}: {error}") from error


def _why_not(host: str, port: int) -> str:
    """What the system says against listening there; empty when nothing."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _options(limits: SessionLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.max_message_bytes),
        ("grpc.max_send_message_length", limits.max_message_bytes),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_S * 1000)),
        # A second server on the same port must fail, not share its connections.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _SHORTEST_PING_MS),
    ]
