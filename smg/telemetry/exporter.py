"""Gives the metrics out in Prometheus' text format: as bytes, or on a listener of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest, start_http_server

if TYPE_CHECKING:
    from types import TracebackType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def new_registry() -> CollectorRegistry:
    """A registry that already tells the process's memory, CPU time and open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """Everything in the registry, in the text format of CONTENT_TYPE."""
    return generate_latest(registry)


class MetricsListener:
    """Serves the metrics on a port of their own, from a thread, so that a busy event loop delays no scrape."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Prepare; nothing listens before `with`. Port 0 takes a free one."""
        self._registry = registry
        self._host = host
        self._port = port

    @property
    def port(self) -> int:
        """The port, once it listens."""
        return self._port

    def __enter__(self) -> Self:
        """Listen. Raises OSError when the port cannot be had."""
        self._server, self._thread = start_http_server(self._port, self._host, self._registry)
        self._port = self._server.server_port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
