"""Makes the registry of metrics, and gives them out on a listener of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from smg.telemetry.exposition import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from types import TracebackType
    from wsgiref.types import StartResponse, WSGIEnvironment


def new_registry() -> CollectorRegistry:
    """A registry that already tells the process's memory, CPU time and open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


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
        self._server.set_app(self._answer)
        self._port = self._server.server_port
        return self

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Every path has the metrics, as with the library's own application, whose text takes far longer to make."""
        del environ
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [exposition(self._registry)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
