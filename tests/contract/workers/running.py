"""Runs a worker for a test, found by probing its address as the router does."""

from __future__ import annotations

import asyncio
import contextlib

from smg.workers.options import WorkerOptions
from smg.workers.probe import open_worker
from tests.contract.workers.engine_script import Changes

# Short pauses, so that a test that waits for a reconnect waits for milliseconds.
QUICK = WorkerOptions(
    backoff_min_s=0.01, backoff_max_s=0.02, health_interval_s=0.02, health_failures=1, health_successes=1
)


# Protocols without a field for ids whose log-probability is wanted: they score no labels either.
NO_ASKED_IDS = ("vllm_grpc",)


class Watched:
    """A worker with its run task; `until` waits for a state."""

    def __init__(self, worker) -> None:
        self.worker = worker
        self._changes = Changes()
        worker.on_state_change = self._changes.notify
        worker.on_load_change = self._changes.notify
        self.task = asyncio.create_task(worker.run())

    async def wait_end(self) -> None:
        """Wait for the end of the run."""
        await asyncio.wait([self.task])

    async def until(self, predicate) -> None:
        await self._changes.until(lambda: self.task.done() or predicate(self.worker))
        if self.task.done():
            self.task.result()


@contextlib.asynccontextmanager
async def watched(url: str, options: WorkerOptions = QUICK):
    """A worker that is ready. It is closed at the end."""
    watch = Watched(await open_worker("w", url, options))
    try:
        await watch.until(lambda worker: worker.is_ready)
        yield watch
    finally:
        watch.task.cancel()
        await asyncio.wait([watch.task])
