"""Prefix caches of servers that tell of blocks: told to who watches, resumed after a break, begun anew where it must be."""

from __future__ import annotations

import contextlib
from array import array

import grpc
import pytest
from smg_grpc_proto.generated import common_pb2 as pb

from smg.workers.probe import open_worker
from tests.contract.workers.collecting import generate
from tests.contract.workers.engine_script import NORMAL, Changes
from tests.contract.workers.running import QUICK, Watched
from tests.contract.workers.sglang_double import SglangDouble
from tests.contract.workers.vllm_double import VllmDouble


@pytest.fixture(params=[SglangDouble, VllmDouble], ids=["sglang_grpc", "vllm_grpc"])
async def double(request):
    engine = request.param()
    await engine.start()
    yield engine
    await engine.kill()


class Cache:
    """Keeps what a worker tells of its cache."""

    def __init__(self) -> None:
        self.held: set[tuple[int, ...]] = set()
        self.clears = 0
        self._changes = Changes()

    def tell(self, changes) -> None:
        for change in changes:
            if change.cleared:
                self.held.clear()
                self.clears += 1
            self.held -= {tuple(array("I", each.ids)) for each in change.evicted_prefixes}
            self.held |= {tuple(array("I", each.ids)) for each in change.stored_prefixes}
        self._changes.notify()

    async def until(self, predicate) -> None:
        await self._changes.until(predicate)


@contextlib.asynccontextmanager
async def caching(double):
    """A worker whose cache is watched."""
    worker, cache = await open_worker("w", double.url, QUICK), Cache()
    worker.on_cache_change = cache.tell
    watch = Watched(worker)
    try:
        await watch.until(lambda worker: worker.is_ready)
        yield watch, cache
    finally:
        watch.task.cancel()
        await watch.wait_end()


def stored(number, key, *ids, parent=None, **fields):
    block = pb.KvBlock(block_hash=key, token_ids=ids, block_size=len(ids))
    event = pb.KvCacheEvent(stored=pb.KvBlocksStored(blocks=[block], parent_block_hash=parent))
    return pb.KvEventBatch(sequence_number=number, events=[event], **fields)


async def test_prefixes_are_told_as_they_come_and_go(double):
    double.tell_cache(stored(1, 11, 1, 2))
    async with caching(double) as (_, cache):
        await cache.until(lambda: cache.held == {(1, 2)})
        double.tell_cache(stored(2, 12, 3, 4, parent=11))
        await cache.until(lambda: (1, 2, 3, 4) in cache.held)
        gone = pb.KvCacheEvent(removed=pb.KvBlocksRemoved(block_hashes=[12]))
        double.tell_cache(pb.KvEventBatch(sequence_number=3, events=[gone]))
        await cache.until(lambda: cache.held == {(1, 2)})
    assert double.kv_subscriptions == [0]


async def test_a_gap_begins_anew_from_the_servers_present_state(double):
    double.tell_cache(stored(1, 11, 1), stored(5, 12, 2))
    async with caching(double) as (_, cache):
        await cache.until(lambda: cache.clears)
        await double.changes.until(lambda: len(double.kv_subscriptions) >= 2)
        double.kv_batches[:] = [stored(5, 12, 2), stored(6, 13, 3, parent=12)]
        double.tell_cache()
        await cache.until(lambda: cache.held == {(2,), (2, 3)})
    assert set(double.kv_subscriptions) == {0}


async def test_a_server_that_cannot_resume_is_asked_for_all_of_it(double):
    double.tell_cache(stored(3, 11, 1))
    double.kv_refusal = grpc.StatusCode.OUT_OF_RANGE
    async with caching(double) as (_, cache):
        await cache.until(lambda: cache.clears and cache.held == {(1,)})
    assert double.kv_subscriptions == [0, 0]


async def test_a_server_without_events_is_asked_once_and_used_all_the_same(double):
    async with caching(double) as (watch, cache):
        answer = await generate(watch.worker, [NORMAL, 1])
        assert answer.finished is not None
        assert not cache.held
    assert double.kv_subscriptions == []


async def test_a_broken_subscription_goes_on_where_it_was():
    double = SglangDouble()
    await double.start()
    double.tell_cache(stored(1, 11, 1), stored(2, 12, 2, parent=11))
    async with caching(double) as (watch, cache):
        await cache.until(lambda: (1, 2) in cache.held)
        connections = watch.worker.connections
        # The same run of the server: it tells the same start.
        double.starts_again = False
        await double.kill()
        await watch.until(lambda worker: not worker.is_connected)
        await double.start()
        await watch.until(lambda worker: worker.connections > connections)
        await double.changes.until(lambda: len(double.kv_subscriptions) == 2)
        double.tell_cache(stored(3, 13, 3, parent=12))
        await cache.until(lambda: (1, 2, 3) in cache.held)
        assert cache.clears == 0
    assert double.kv_subscriptions == [0, 2]
    await double.kill()


async def test_a_server_that_has_restarted_is_begun_anew():
    double = SglangDouble()
    await double.start()
    double.tell_cache(stored(7, 11, 1))
    async with caching(double) as (watch, cache):
        await cache.until(lambda: cache.held)
        await double.kill()
        await watch.until(lambda worker: not worker.is_connected)
        double.kv_batches[:] = [stored(1, 21, 9)]
        await double.start()
        await cache.until(lambda: (9,) in cache.held)
    assert double.kv_subscriptions == [0, 0]
    await double.kill()
