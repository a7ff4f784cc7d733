"""Blocks of an engine's prefix cache become prefixes; what cannot be a prefix of ours is left out."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto.generated import common_pb2 as pb

from smg.workers.kv_blocks import KvBlocks, KvGap
from tests.examples import examples


def packed(*ids: int) -> bytes:
    return array("I", ids).tobytes()


def stored(*blocks, parent=None, **fields):
    entries = [pb.KvBlock(block_hash=key, token_ids=ids, block_size=len(ids)) for key, ids in blocks]
    return pb.KvCacheEvent(stored=pb.KvBlocksStored(blocks=entries, parent_block_hash=parent, **fields))


def removed(*hashes):
    return pb.KvCacheEvent(removed=pb.KvBlocksRemoved(block_hashes=hashes))


CLEARED = pb.KvCacheEvent(cleared=pb.KvCacheCleared())


def batch(number, *events, **fields):
    return pb.KvEventBatch(sequence_number=number, events=events, **fields)


def told(changes):
    """Changes in short: ("+", ids), ("-", ids, kept) or "cleared"."""
    short = []
    for change in changes:
        if change.cleared:
            short.append("cleared")
        short += [("-", each.ids, each.kept_tokens) for each in change.evicted_prefixes]
        short += [("+", each.ids) for each in change.stored_prefixes]
    return short


def test_blocks_become_the_prefix_that_ends_with_the_last():
    blocks = KvBlocks(10)
    first = blocks.take(batch(1, stored((11, [1, 2]), (12, [3, 4]))))
    more = blocks.take(batch(2, stored((13, [5, 6]), parent=12)))
    assert told(first) == [("+", packed(1, 2, 3, 4))]
    assert told(more) == [("+", packed(1, 2, 3, 4, 5, 6))]


def test_a_removed_block_leaves_what_is_before_it():
    blocks = KvBlocks(10)
    blocks.take(batch(1, stored((11, [1, 2]), (12, [3, 4]))))
    assert told(blocks.take(batch(2, removed(12, 99)))) == [("-", packed(1, 2, 3, 4), 2)]
    assert told(blocks.take(batch(3, removed(11)))) == [("-", packed(1, 2), 0)]
    assert len(blocks) == 0


def test_a_block_that_is_held_twice_is_gone_with_its_last_copy():
    blocks = KvBlocks(10)
    blocks.take(batch(1, stored((11, [1, 2]))))
    assert told(blocks.take(batch(2, stored((11, [1, 2]), tier=pb.KV_CACHE_TIER_HOST)))) == []
    assert told(blocks.take(batch(3, removed(11)))) == []
    assert told(blocks.take(batch(4, removed(11)))) == [("-", packed(1, 2), 0)]


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_name": "poet"},
        {"cache_salt": "tenant"},
        {"tier": pb.KV_CACHE_TIER_EXTERNAL},
        {"locality": pb.KV_CACHE_LOCALITY_REMOTE},
        {"parent": 77},
    ],
)
def test_what_a_prompt_of_ours_would_not_find_is_left_out(fields):
    blocks = KvBlocks(10)
    assert blocks.take(batch(1, stored((11, [1, 2]), **fields))) == []
    assert len(blocks) == 0


def test_a_block_with_more_than_tokens_in_it_ends_the_prefix():
    event = stored((11, [1, 2]), (12, [3, 4]), (13, [5, 6]))
    event.stored.blocks[1].extra_keys.add(text="an image")
    blocks = KvBlocks(10)
    assert told(blocks.take(batch(1, event))) == [("+", packed(1, 2))]
    assert blocks.take(batch(2, stored((14, [7]), parent=13))) == []


def test_repeated_batches_are_ignored_and_missing_ones_noticed():
    blocks = KvBlocks(10)
    blocks.take(batch(5, stored((11, [1]))))
    assert blocks.resume_at == 5
    assert blocks.take(batch(5, stored((12, [2])))) == []
    with pytest.raises(KvGap, match="event 7 of rank 0 came after 5"):
        blocks.take(batch(7))
    assert told([blocks.forget()]) == ["cleared"]
    assert blocks.resume_at == 0
    assert told(blocks.take(batch(20, stored((11, [1]))))) == [("+", packed(1))]


def test_ranks_have_numbers_and_blocks_of_their_own():
    blocks = KvBlocks(10)
    blocks.take(batch(5, stored((11, [1])), dp_rank=0))
    assert told(blocks.take(batch(90, stored((11, [2])), dp_rank=1))) == [("+", packed(2))]
    blocks.take(batch(6, CLEARED, dp_rank=0))
    assert told(blocks.take(batch(91, removed(11), dp_rank=1))) == [("-", packed(2), 0)]
    # One number cannot name a place in both.
    assert blocks.resume_at == 0


def test_a_snapshot_replaces_all_and_the_next_event_goes_on_from_it():
    blocks = KvBlocks(10)
    blocks.take(batch(5, stored((11, [1]))))
    first = batch(40, CLEARED, stored((21, [4])), snapshot=pb.KvSnapshotChunk(index=0, count=2))
    last = batch(41, stored((22, [5]), parent=21), snapshot=pb.KvSnapshotChunk(index=1, count=2))
    assert told(blocks.take(first)) == ["cleared", ("+", packed(4))]
    assert told(blocks.take(last)) == [("+", packed(4, 5))]
    assert told(blocks.take(batch(42, removed(22)))) == [("-", packed(4, 5), 1)]


def test_load_records_carry_no_number():
    blocks = KvBlocks(10)
    blocks.take(batch(5))
    assert blocks.take(batch(5, load=pb.EngineLoad(load_only=True))) == []
    assert blocks.take(batch(6, stored((1, [1])))) != []


def test_the_oldest_are_forgotten_beyond_the_bound():
    blocks = KvBlocks(3)
    blocks.take(batch(1, *(stored((key, [key])) for key in range(1, 6))))
    assert len(blocks) == 3
    assert told(blocks.take(batch(2, removed(1, 5)))) == [("-", packed(5), 0)]
    # What hangs on a forgotten block has no beginning any more.
    assert blocks.take(batch(3, stored((9, [9]), parent=2))) == []


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=40))
def test_what_is_told_adds_up_to_what_is_held(steps):
    """A chain of blocks stored and removed at will: prefixes told and not taken back are those of blocks held."""
    blocks, held, known = KvBlocks(100), set(), set()
    for number, (is_stored, depth) in enumerate(steps, 1):
        if is_stored:
            event = stored((depth, [depth]), parent=depth - 1 if depth else None)
            if depth == 0 or depth - 1 in held:
                held.add(depth)
        else:
            event = removed(*(key for key in range(depth, 8) if key in held))
            held -= set(range(depth, 8))
        for change in blocks.take(batch(number, event)):
            known |= {each.ids for each in change.stored_prefixes}
            known -= {each.ids for each in change.evicted_prefixes}
    # A block stored twice has two copies; here removal takes one at a time.
    assert {packed(*range(depth + 1)) for depth in held} <= known
