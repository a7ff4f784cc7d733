"""ConnectedWorker: how a connection ends when it is lost, when it is closed, and when both happen at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from smg.workers.connected import ConnectedWorker, ConnectionLost
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry
from smg_proto.engine.v1 import card_pb2

QUICK = WorkerOptions(backoff_min_s=0.001, backoff_max_s=0.001, is_health_checked=False)
URL = "grpc://127.0.0.1:1"


class Scripted(ConnectedWorker):
    """Its connections are lost when the test says so, and take as long to close as the test wants."""

    protocol = "scripted"
    inflight_requests = 0
    backlog_tokens = 0.0
    steps_per_second = 0.0

    def __init__(self, worker_id="w", url=URL, options=QUICK):
        super().__init__(worker_id, url, options)
        self.lose = asyncio.Event()
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.opened = asyncio.Queue()

    async def _serve_once(self):
        self._opened(card_pb2.DescribeResponse(models=[card_pb2.ModelCard(id="m")]))
        await self._check_health()
        self.opened.put_nowait(self.connections)
        await self._serve_together(self._until_lost(), self._close_slowly())

    async def _until_lost(self):
        await self.lose.wait()
        self.lose.clear()
        raise ConnectionLost("the test lost it")

    async def _close_slowly(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.closing.set()
            await self.may_close.wait()

    async def _ask_health(self):
        return ""

    def _progress_seen(self):
        return 0

    def _sequences_running(self):
        return 0

    def _give_up(self, error):
        pass

    def generate(self, request, listener):
        raise NotImplementedError

    score = embed = classify = abort = fetch_tokenizer = flush_cache = generate


async def test_a_close_while_a_lost_connection_is_taken_apart_ends_the_worker():
    worker = Scripted()
    running = asyncio.create_task(worker.run())
    await worker.opened.get()
    worker.lose.set()
    await worker.closing.wait()
    running.cancel()
    worker.may_close.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.connections == 1


async def test_a_close_waits_for_all_parts_of_the_connection():
    before = asyncio.all_tasks()
    worker = Scripted()
    running = asyncio.create_task(worker.run())
    await worker.opened.get()
    running.cancel()
    await worker.closing.wait()
    # Asked twice, as a router is whose operator is in a hurry.
    running.cancel()
    worker.may_close.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before


async def test_a_worker_that_is_lost_again_and_again_comes_back_each_time():
    worker = Scripted()
    worker.may_close.set()
    running = asyncio.create_task(worker.run())
    for number in range(1, 5):
        assert await worker.opened.get() == number
        worker.lose.set()
    await worker.opened.get()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_first_reason_for_a_loss_is_told():
    worker = Scripted()
    worker.may_close.set()
    states = asyncio.Queue()
    worker.on_state_change = lambda: states.put_nowait(worker.reason)
    running = asyncio.create_task(worker.run())
    await worker.opened.get()
    worker.lose.set()
    while await states.get() != "the test lost it":
        pass
    running.cancel()
    await asyncio.wait((running,))


async def test_a_part_with_nothing_to_do_does_not_end_the_connection():
    class Idle(Scripted):
        async def _close_slowly(self):
            return

    worker = Idle()
    running = asyncio.create_task(worker.run())
    for number in (1, 2):
        assert await worker.opened.get() == number
        worker.lose.set()
    running.cancel()
    await asyncio.wait((running,))


async def test_a_fault_in_a_part_of_a_connection_is_not_taken_for_a_loss():
    class Broken(Scripted):
        async def _until_lost(self):
            raise ZeroDivisionError

    worker = Broken()
    worker.may_close.set()
    with pytest.raises(ZeroDivisionError):
        await worker.run()


@pytest.mark.parametrize("fault", [RuntimeError("lost at the same moment"), ConnectionLost("lost")])
async def test_the_registry_closes_although_a_connection_breaks_while_it_is_closed(fault):
    class Breaking(Scripted):
        async def run(self):
            self.opened.put_nowait(1)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise fault

    worker = Breaking()

    async def open_breaking(*_):
        return worker

    registry = WorkerRegistry(QUICK, open_worker=open_breaking)
    registry.start()
    registry.add(URL)
    await worker.opened.get()
    await registry.close()
    assert worker.opened.empty()
