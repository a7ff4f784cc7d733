"""Engines as processes of their own, one killed and one frozen under 200 streams: no client notices anything."""

import asyncio

import pytest

from benchmarks.faults.chaos import compare, disturb, echo_bodies, run_all
from benchmarks.faults.fleet import EngineProcess, echo_flags, metric
from benchmarks.gateway.children import Children
from tests.integration.running_router import running_router

STREAMS = 200
SILENCE_S = 1.0


async def until(condition):
    """Look now and then: other processes need the processor that looking all the time would take."""
    while not condition():  # noqa: ASYNC110 - states of other processes
        await asyncio.sleep(0.02)


@pytest.fixture
def engines(tmp_path, tokenizer_dir):
    with Children(tmp_path, tmp_path / "log") as children:
        flags = echo_flags(tokenizer_dir, 0.02, "--max-running", "512")
        engines = [EngineProcess(children, f"engine{number}", flags) for number in range(3)]
        for engine in engines:
            engine.wait_ready()
        yield engines


@pytest.mark.slow
@pytest.mark.timeout(180)  # coverage and a busy machine make it several times slower
async def test_nobody_notices_that_one_engine_is_killed_and_one_frozen(engines):
    bodies = echo_bodies(STREAMS, 64)
    urls = [engine.url for engine in engines]
    async with running_router(*urls, workers={"worker_silence_secs": SILENCE_S}) as gateway:
        registry, port = gateway.router.registry, gateway.http.base_url.port
        await until(lambda: len(registry.snapshots("m")) == len(engines))
        expected = await run_all(port, bodies)
        workers = {each.url: each.worker for each in registry.workers()}
        running = asyncio.create_task(run_all(port, bodies))
        await until(lambda: all(worker.load.running > STREAMS // 40 for worker in workers.values()))
        frozen = workers[urls[1]]
        assert frozen.inflight_requests
        await disturb(engines, lambda: until(lambda: not frozen.is_ready and not frozen.inflight_requests))
        seen = await running
        moved = int(await asyncio.to_thread(metric, port, "smg_retries_total"))
        verdict = compare(expected, seen, moved)
        assert verdict.is_good, verdict
        await until(lambda: gateway.router.admission.running == 0)
        await until(lambda: not any(worker.inflight_requests for worker in workers.values()))
        # Both are back, and nothing is left on any engine.
        await until(lambda: all(worker.is_ready and not worker.load.running for worker in workers.values()))
        again = await run_all(port, bodies[: 2 * len(engines)])
        assert compare(expected[: len(again)], again, moved).is_good
