"""Answers probes on a port of their own, from a thread, so that no request in the router holds up a probe.

The router's event loop leaves the answers here, several times a second. When it has not come for long it is stuck, and
/liveness says so: then a restart helps, and nothing else would. Nobody but probes asks here: one short request a
connection, few connections at a time, and little time for each.
"""

from __future__ import annotations

import asyncio
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from gateway.listener import bind
from gateway.status import ProbeAnswer
from gateway.whole import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

# Between two visits of the event loop, and how long it may stay away. Nothing there takes longer than milliseconds.
_VISIT_S = 0.25
_STUCK_S = 20.0

_MAX_HEAD_BYTES = 8192
_MAX_CONNECTIONS = 64
_TIMEOUT_S = 5.0

_NOT_FOUND = ProbeAnswer(404, TEXT, b"there are /liveness, /readiness and /health here")
_BAD_REQUEST = ProbeAnswer(400, TEXT, b"not a GET or HEAD request of HTTP/1")
_BUSY = ProbeAnswer(503, TEXT, b"too many probes at a time")


class ProbeListener:
    """The listener and its thread: `with` starts and ends them."""

    def __init__(
        self,
        probes: Callable[[], Mapping[str, ProbeAnswer]],
        host: str,
        port: int,
        *,
        stuck_s: float = _STUCK_S,
    ) -> None:
        """Prepare; nothing listens before `with`.

        Args:
            probes: makes the answers by path; called on the router's event loop alone.
            host: address to listen on.
            port: 0 takes a free one.
            stuck_s: time without a visit of the event loop after which it counts as stuck.
        """
        self._probes = probes
        self._stuck_s = stuck_s
        self._host = host
        self.port = port
        self._latest: tuple[float, Mapping[str, ProbeAnswer]] = (time.monotonic(), probes())
        self._connections = 0
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self._has_started = threading.Event()

    def __enter__(self) -> Self:
        """Listen. Raises PortTaken when the port cannot be had."""
        self._socket = bind(self._host, self.port)
        self.port = self._socket.getsockname()[1]
        self._thread.start()
        self._has_started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()

    async def follow(self) -> None:
        """Leave the answers of now, again and again, until cancelled. Runs on the router's event loop."""
        while True:
            self._latest = (time.monotonic(), self._probes())
            await asyncio.sleep(_VISIT_S)

    def answer(self, path: str) -> ProbeAnswer:
        """What a path is answered now."""
        left_at, answers = self._latest
        away_s = time.monotonic() - left_at
        if path in answers and away_s > self._stuck_s:
            return ProbeAnswer(503, TEXT, b"the event loop has been stuck for %d s" % away_s)
        return answers.get(path, _NOT_FOUND)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        """Serve until told to stop. What is under way then is cut when the loop is closed."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        try:
            server = await asyncio.start_server(self._serve, sock=self._socket, limit=_MAX_HEAD_BYTES)
        finally:
            self._has_started.set()
        await stopped.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._exchange(reader, writer)
        except (OSError, TimeoutError):
            # The prober has left, or sends nothing.
            writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            head = b""
        method, _, rest = head.partition(b" ")
        target, _, version = rest.partition(b"\r\n")[0].partition(b" ")
        if method not in (b"GET", b"HEAD") or not version.startswith(b"HTTP/1."):
            told = _BAD_REQUEST
        elif self._connections > _MAX_CONNECTIONS:
            told = _BUSY
        else:
            told = self.answer(target.partition(b"?")[0].decode("ascii", "replace"))
        writer.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (told.status, HTTPStatus(told.status).phrase.encode(), told.content_type, len(told.body))
            + (told.body if method == b"GET" else b"")
        )
        await writer.drain()
