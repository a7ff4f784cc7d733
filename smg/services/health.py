"""grpc.health.v1: serving while some worker takes work and the router does not shut down.

Unlike the reference servicer, a watcher that does not read holds up nobody, and watches end when the router stops, so
that they do not use up the grace period.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import grpc_health.v1.health_pb2

from smg.services.rpc import add_service, stream_method, unary_method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smg.services.rpc import Context

SERVICE = "grpc.health.v1.Health"

# The stubs know no messages of this package.
health_pb2: Any = grpc_health.v1.health_pb2
_Response = health_pb2.HealthCheckResponse


class HealthService:
    """Answers for the server as a whole (the empty name) and for each of its services."""

    def __init__(self, is_ready: Callable[[], bool], ready: Iterable[str], always: Iterable[str]) -> None:
        """Set up.

        Args:
            is_ready: some worker takes work.
            ready: services that serve while is_ready; the server as a whole does as well.
            always: services that serve until the stop.
        """
        self._is_ready = is_ready
        self._ready = frozenset(["", *ready])
        self._always = frozenset(always)
        self._is_stopped = False
        self._watchers: set[asyncio.Event] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "Check": unary_method(self.check, health_pb2.HealthCheckRequest),
            "Watch": stream_method(self.watch, health_pb2.HealthCheckRequest),
        }
        add_service(server, SERVICE, methods)

    def refresh(self) -> None:
        """Tell the watchers, if something has changed for them."""
        for watcher in self._watchers:
            watcher.set()

    def stop(self) -> None:
        """Serve nothing from now on; every watcher is told and let go."""
        self._is_stopped = True
        self.refresh()

    async def check(self, request: Any, context: Context) -> Any:
        """Tell how it is now. NOT_FOUND for a service that is not here."""
        status = self._status(request.service)
        if status == _Response.SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no service {request.service[:200]!r} is served here"
            )
        return _Response(status=status)

    async def watch(self, request: Any, context: Context) -> None:
        """Tell how it is now and whenever that changes."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        told: int | None = None
        try:
            while True:
                changed.clear()
                status = self._status(request.service)
                if status != told:
                    told = status
                    await context.write(_Response(status=status))
                if self._is_stopped:
                    return
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def _status(self, service: str) -> int:
        if service in self._always:
            serves = not self._is_stopped
        elif service in self._ready:
            serves = not self._is_stopped and self._is_ready()
        else:
            return _Response.SERVICE_UNKNOWN
        return _Response.SERVING if serves else _Response.NOT_SERVING
