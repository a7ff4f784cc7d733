"""Whether the gateway lives, is ready, and how it does: the paths that probes and scrapers ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gateway.decisions.cards import API_VERSION
from gateway.whole import JSON, TEXT, answer, answer_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.reply import Reply
    from gateway.request import HttpRequest
    from smg.workers.registry import WorkerRegistry


class ProbeAnswer(NamedTuple):
    """What a probe is answered."""

    status: int
    content_type: bytes
    body: bytes


LIVES = ProbeAnswer(200, TEXT, b"OK")


class StatusHandlers:
    """The handlers and what they look at."""

    def __init__(
        self,
        registry: WorkerRegistry,
        is_draining: Callable[[], bool],
        is_prepared: Callable[[], bool],
        exposition: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Take what the answers tell.

        Args:
            registry: the workers.
            is_draining: we are shutting down.
            is_prepared: tokenizers of the first models were loaded, so that a request need not wait for them.
            exposition: makes the metrics in Prometheus' text format.
        """
        self._registry = registry
        self._is_prepared = is_prepared
        self._is_draining = is_draining
        self._exposition = exposition
        self._scrape: asyncio.Task[bytes] | None = None
        self._scraping = asyncio.Lock()

    async def liveness(self, request: HttpRequest, reply: Reply) -> None:
        """GET /liveness: the process answers."""
        answer(request, reply, *LIVES)

    async def live(self, request: HttpRequest, reply: Reply) -> None:
        """GET /health/live: the process answers, and some engine makes progress, or has nothing to do."""
        workers = self._registry.workers()
        if not workers or not all(worker.is_stalled for worker in workers):
            answer_json(request, reply, {"status": "alive", "api_version": API_VERSION})
            return
        # Clients read it: no addresses.
        reason = f"{len(workers)} workers stand still: {workers[0].reason}"
        answer_json(request, reply, {"status": "stalled", "reason": reason, "api_version": API_VERSION}, 503)

    async def health(self, request: HttpRequest, reply: Reply) -> None:
        """GET /health: the process answers and serves."""
        answer(request, reply, *self._health())

    async def readiness(self, request: HttpRequest, reply: Reply) -> None:
        """GET /readiness: at least one worker takes work, and we are not shutting down."""
        answer(request, reply, *self._readiness())

    def probes(self) -> dict[str, ProbeAnswer]:
        """What each path answers now."""
        return {"/liveness": LIVES, "/health": self._health(), "/readiness": self._readiness()}

    def _health(self) -> ProbeAnswer:
        return ProbeAnswer(503, TEXT, b"draining") if self._is_draining() else LIVES

    def _readiness(self) -> ProbeAnswer:
        workers = self._registry.workers()
        ready = sum(worker.is_ready for worker in workers)
        why_not = self._why_not(ready)
        told: dict[str, str | int]
        if why_not:
            told = {"status": "not ready", "reason": why_not}
        else:
            told = {"status": "ready", "healthy_workers": ready, "total_workers": len(workers)}
        return ProbeAnswer(503 if why_not else 200, JSON, orjson.dumps(told))

    def _why_not(self, ready: int) -> str:
        if self._is_draining():
            return "draining"
        if not ready:
            return "insufficient healthy workers"
        return "" if self._is_prepared() else "tokenizers are being loaded"

    async def metrics(self, request: HttpRequest, reply: Reply) -> None:
        """GET /metrics: Prometheus' text format."""
        if self._scrape is None:
            self._scrape = asyncio.create_task(self._scraped())
        # Shielded: others wait for the same text.
        text = await asyncio.shield(self._scrape)
        answer(request, reply, 200, b"text/plain; version=0.0.4; charset=utf-8", text)

    async def _scraped(self) -> bytes:
        """The metrics, one text at a time: those of a large fleet take a tenth of a second."""
        async with self._scraping:
            # Who asks from here on wants what happens from here on.
            self._scrape = None
            return await self._exposition()
