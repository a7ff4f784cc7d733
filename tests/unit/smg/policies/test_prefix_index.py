"""The index of prefixes: who holds what, bounded, and the keys that it goes by."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.policies.blocks import MAX_TOKENS, Blocks
from smg.policies.prefix_index import Holder, PrefixIndex


def packed(*ids: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in ids)


def holders_of(index: PrefixIndex, key: int) -> set[str]:
    held = index.get(key)
    if held is None:
        return set()
    return {held.worker_id} if isinstance(held, Holder) else {each.worker_id for each in held}


@given(
    same=st.integers(0, 400),
    tails=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    block=st.sampled_from([1, 7, 16, 64]),
)
def test_two_prompts_share_exactly_the_keys_of_the_blocks_they_share(same, tails, block):
    blocks = Blocks(block)
    start = packed(*range(same))
    one = blocks.keys("m", start + packed(*[1_000_000] * tails[0]))
    other = blocks.keys("m", start + packed(*[2_000_000] * tails[1]))
    alike = sum(first == second for first, second in zip(one, other, strict=False))
    assert one[:alike] == other[:alike]
    assert blocks.tokens(alike) <= same
    shorter = min(len(one), len(other))
    assert alike == shorter or blocks.tokens(alike + 1) > same


def test_a_key_stands_for_the_whole_prefix_and_the_model():
    blocks = Blocks(2)
    keys = blocks.keys("m", packed(1, 2, 3, 4))
    assert blocks.keys("m", packed(9, 9, 3, 4))[1] != keys[1]
    assert not set(blocks.keys("n", packed(1, 2, 3, 4))) & set(keys)


def test_a_block_that_is_not_whole_has_no_key():
    assert Blocks(64).keys("m", packed(*range(63))) == []
    assert len(Blocks(64).keys("m", packed(*range(64)))) == 1


@pytest.mark.parametrize("tokens", [1024, 4096, 32_768, MAX_TOKENS, 10 * MAX_TOKENS], ids=str)
def test_long_prompts_have_few_keys_and_are_known_to_an_eighth(tokens):
    blocks = Blocks(64)
    keys = blocks.keys("m", bytes(4 * tokens))
    assert len(keys) <= 80
    for count in range(16, len(keys)):
        assert blocks.tokens(count + 1) <= blocks.tokens(count) * 9 / 8


@given(
    capacity=st.integers(1, 60),
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(0, 3)), max_size=60),
)
def test_the_index_never_has_more_than_its_capacity_plus_one_prefix(capacity, steps):
    index = PrefixIndex(capacity)
    holders = [Holder(str(number), "") for number in range(4)]
    for start, length, who in steps:
        index.add(list(range(start, start + length)), holders[who])
        # The table that gets full is put aside with the prefix that filled it, which each of four may hold.
        assert len(index) <= capacity + 2 * 4


def test_a_million_entries_fit_into_their_capacity():
    index, rng = PrefixIndex(8192), random.Random(1)
    holder = Holder("w", "")
    for _ in range(2000):
        index.add([rng.getrandbits(62) for _ in range(64)], holder)
    assert 4096 - 64 <= len(index) <= 8192 + 64


def test_what_is_used_stays_and_what_is_not_goes():
    index, rng, holder = PrefixIndex(200), random.Random(1), Holder("w", "")
    kept = [rng.getrandbits(62) for _ in range(20)]
    once = [rng.getrandbits(62) for _ in range(20)]
    index.add(kept, holder)
    index.add(once, holder)
    for _ in range(100):
        index.add([rng.getrandbits(62) for _ in range(20)], holder)
        index.add(kept, holder)
    assert index.known(kept) == 20
    assert index.known(once) == 0


def test_the_known_part_of_a_prompt_is_counted_from_its_start():
    index = PrefixIndex(1000)
    index.add([1, 2, 3, 4, 5], Holder("w", ""))
    assert index.known([1, 2, 3, 9, 10]) == 3
    assert index.known([9]) == 0
    assert index.known([]) == 0


def test_several_hold_a_prefix_and_each_can_lose_it():
    index, a, b, c = PrefixIndex(100), Holder("a", ""), Holder("b", ""), Holder("c", "")
    for holder in (a, b, a, c):
        index.add([1, 2], holder)
    assert holders_of(index, 1) == {"a", "b", "c"}
    assert len(index) == 6
    index.remove([1, 7], b)
    assert holders_of(index, 1) == {"a", "c"}
    index.remove([1], a)
    index.remove([1], c)
    assert index.get(1) is None
    assert len(index) == 3


def test_holders_that_are_gone_make_room():
    index = PrefixIndex(10_000)
    for life in range(1000):
        holder = Holder("w", str(life))
        index.add([1], holder)
        holder.is_current = False
    assert len(index) <= 64
