"""Hundreds of requests of all kinds, many of them broken off anywhere, leave nothing behind."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.faults.soak import soak
from tests.integration.running_router import running_router


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition):
    while not condition():  # noqa: ASYNC110 - states of an engine, which has no event for them
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(180)  # coverage makes it several times slower
async def test_requests_that_are_broken_off_leave_nothing(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        port = gateway.http.base_url.port
        await soak(port, 20)
        await gateway.http.get("/liveness")
        tasks, files = len(asyncio.all_tasks()), open_files()
        await soak(port, 300, first=20)
        worker, admission = gateway.router.registry.workers()[0].worker, gateway.router.admission
        load = echo_worker.servers[url].engine.load
        await until(lambda: not (worker.inflight_requests or load().running or load().waiting))
        await until(lambda: not (admission.running or admission.waiting))
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: open_files() <= files + 1)
