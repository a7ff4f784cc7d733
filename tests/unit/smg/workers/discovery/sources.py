"""A source whose answers a test gives, and a registry whose workers never connect."""

from __future__ import annotations

import asyncio
import contextlib

from smg.workers.discovery.base import Found
from smg.workers.discovery.reconciler import Discovery
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry

QUICK = WorkerOptions(backoff_min_s=0.001, backoff_max_s=0.001)


class TestSource:
    """Tells what it is given; `fail` makes it raise."""

    __test__ = False

    def __init__(self, kind: str = "test") -> None:
        self.kind = kind
        self.runs = 0
        self.hurry = asyncio.Event()
        self._given: asyncio.Queue = asyncio.Queue()

    async def watch(self, tell, hurry) -> None:
        self.runs += 1
        self.hurry = hurry
        while True:
            given, done = await self._given.get()
            done.set()
            if isinstance(given, Exception):
                raise given
            tell(given)

    async def give(self, *found) -> None:
        await self._put([each if isinstance(each, Found) else Found(each) for each in found])

    async def fail(self, fault: Exception) -> None:
        await self._put(fault)

    async def _put(self, given) -> None:
        done = asyncio.Event()
        self._given.put_nowait((given, done))
        await done.wait()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def discovering(*sources, registry=None):
    """A registry that the sources fill."""
    registry = registry or WorkerRegistry(QUICK)
    task = asyncio.create_task(Discovery(registry, sources, QUICK).run())
    try:
        yield registry
    finally:
        task.cancel()
        await asyncio.wait([task])
        await registry.close()


def urls(registry) -> list[str]:
    return [worker.url for worker in registry.workers()]
