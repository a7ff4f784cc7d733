"""Prefixes become blocks: each told once, removed once, and what does not fit is left out."""

from __future__ import annotations

from servicers.compat.kv_events import BLOCK_TOKENS, CacheSubscription
from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2


def prefix(count: int, **fields) -> card_pb2.CachedPrefix:
    return card_pb2.CachedPrefix(ids=ids_to_bytes(range(count)), **fields)


def told(subscription, *changes):
    subscription.emit(engine_pb2.SessionEvent(cache=changes))


async def batches(subscription):
    return await subscription.take()


async def test_blocks_are_stored_once_and_hang_on_the_one_before():
    subscription = CacheSubscription("m", 10)
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(2 * BLOCK_TOKENS + 5)]))
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(3 * BLOCK_TOKENS)]))
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(3 * BLOCK_TOKENS)]))
    first, second = await batches(subscription)
    stored, more = first.events[0].stored, second.events[0].stored
    assert [list(each.token_ids) for each in stored.blocks] == [
        list(range(16)),
        list(range(16, 32)),
    ]
    assert not stored.HasField("parent_block_hash")
    assert more.parent_block_hash == stored.blocks[1].block_hash
    assert len(more.blocks) == 1
    assert [first.sequence_number, second.sequence_number] == [1, 2]


async def test_evicted_blocks_are_removed_from_the_end():
    subscription = CacheSubscription("m", 10)
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(48)]))
    told(subscription, card_pb2.CacheEvent(evicted_prefixes=[prefix(48, kept_tokens=16)]))
    told(subscription, card_pb2.CacheEvent(evicted_prefixes=[prefix(48, kept_tokens=16)]))
    stored, removed = await batches(subscription)
    hashes = [each.block_hash for each in stored.events[0].stored.blocks]
    assert list(removed.events[0].removed.block_hashes) == [hashes[2], hashes[1]]


async def test_other_models_are_not_told_of_and_all_can_go_at_once():
    subscription = CacheSubscription("m", 10)
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(16, model="other")]))
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(16, model="m")]))
    told(subscription, card_pb2.CacheEvent(cleared=True))
    told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(16)]))
    kinds = [each.WhichOneof("data") for batch in await batches(subscription) for each in batch.events]
    assert kinds == ["stored", "cleared", "stored"]


async def test_who_does_not_read_has_to_begin_anew():
    subscription = CacheSubscription("m", 1)
    for count in (16, 32, 48):
        told(subscription, card_pb2.CacheEvent(stored_prefixes=[prefix(count)]))
    assert subscription.unsent_events == 1
    assert len(await batches(subscription)) == 1
    assert await batches(subscription) == []
