"""PrefixCache: reuses exactly what is equal, prefers what costs least, and never touches a taken slot."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from servicers.local.prefix_cache import PrefixCache
from tests.examples import examples


class Memory:
    """Slots that hold their tokens openly."""

    def __init__(self, slots: int = 3, slot_tokens: int = 64) -> None:
        self.slots, self.slot_tokens = slots, slot_tokens
        self.tokens = np.full((slots, slot_tokens), -1)
        self.copies = []

    def copy_prefix(self, source: int, target: int, tokens: int) -> None:
        self.tokens[target, :tokens] = self.tokens[source, :tokens]
        self.copies.append((source, target, tokens))


class Rig:
    def __init__(self, **sizes) -> None:
        self.memory = Memory(**sizes)
        self.cache = PrefixCache(self.memory)

    def start(self, ids: list[int], limit: int | None = None) -> tuple[int, int]:
        prompt = np.array(ids, dtype=np.int64)
        slot, cached = self.cache.acquire(prompt, len(ids) if limit is None else limit)
        assert self.memory.tokens[slot, :cached].tolist() == ids[:cached]
        self.memory.tokens[slot, cached : len(ids)] = ids[cached:]
        self.cache.extend(slot, prompt[cached:])
        return slot, cached

    def run(self, ids: list[int], limit: int | None = None) -> tuple[int, int]:
        slot, cached = self.start(ids, limit)
        self.cache.release(slot, keep=True)
        return slot, cached


def test_a_finished_prompt_is_reused_in_place_by_one_that_goes_on():
    rig = Rig()
    slot, _ = rig.run([1, 2, 3, 4])
    assert rig.run([1, 2, 3, 4, 5, 6]) == (slot, 4)
    assert rig.memory.copies == []


def test_a_prompt_that_branches_off_early_leaves_the_other_whole():
    rig = Rig()
    old = list(range(20))
    first, _ = rig.run(old)
    second, cached = rig.run([0, 1, 2, 50, 51])
    assert (second != first, cached) == (True, 3)
    assert rig.memory.copies == [(first, second, 3)]
    assert rig.run([*old, 99]) == (first, 20)


def test_a_running_prompt_is_a_source_too():
    rig = Rig()
    first, _ = rig.start([1, 2, 3])
    second, cached = rig.start([1, 2, 3, 4])
    assert (first != second, cached) == (True, 3)


def test_the_limit_leaves_tokens_to_compute():
    rig = Rig()
    rig.run([1, 2, 3])
    assert rig.run([1, 2, 3], limit=2)[1] == 2
    assert rig.run([1, 2, 3], limit=0)[1] == 0


def test_the_least_recently_used_tokens_go_first():
    rig = Rig()
    slots = [rig.run([base, base + 1, base + 2])[0] for base in (10, 20, 30)]
    rig.run([10, 11, 12])
    assert rig.run([40, 41, 42])[0] == slots[1]
    assert rig.cache.match(np.array([30, 31, 32]), 3) == 3
    assert rig.cache.match(np.array([20, 21, 22]), 3) == 0


def test_empty_slots_are_taken_from_the_lowest_on():
    rig = Rig()
    assert [rig.start([base])[0] for base in (1, 2, 3)] == [0, 1, 2]
    assert not rig.cache.has_free_slot


def test_a_slot_that_is_not_kept_is_forgotten():
    rig = Rig()
    slot, _ = rig.start([1, 2, 3])
    rig.cache.release(slot, keep=False)
    assert rig.run([1, 2, 3])[1] == 0


def test_flush_forgets_free_slots_and_spares_running_ones():
    rig = Rig()
    rig.run([1, 2, 3, 4])
    rig.start([7, 8])
    assert rig.cache.used_tokens() == 6
    assert rig.cache.flush() == 4
    assert rig.cache.used_tokens() == 2
    assert rig.cache.match(np.array([7, 8]), 2) == 2
    assert rig.cache.flush() == 0


def test_appended_tokens_belong_to_the_prefix():
    rig = Rig()
    slot, _ = rig.start([1, 2])
    rig.cache.append([slot], np.array([9]))
    rig.memory.tokens[slot, 2] = 9
    rig.cache.release(slot, keep=True)
    assert rig.run([1, 2, 9, 9])[1] == 3


@examples(10)
@given(
    prompts=st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans()), max_size=25
    )
)
def test_what_is_reused_is_always_equal_and_as_long_as_any_slot_allows(prompts):
    rig = Rig(slots=3, slot_tokens=16)
    taken = []
    for ids, is_kept_running in prompts:
        if not rig.cache.has_free_slot:
            rig.cache.release(taken.pop(0), keep=True)
        longest = rig.cache.match(np.array(ids), len(ids))
        slot, cached = rig.start(ids)
        assert cached == longest
        assert slot not in taken
        taken.append(slot)
        if not is_kept_running:
            rig.cache.release(taken.pop(), keep=True)


@settings(max_examples=50, deadline=None)
@given(asked=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), max_size=25), kept=st.booleans())
def test_who_watches_can_tell_what_the_slots_keep(asked, kept):
    rig, held = Rig(slots=3, slot_tokens=12), set()
    rig.cache.is_watched = True
    for number, ids in enumerate(asked):
        slot, _ = rig.start(ids)
        rig.cache.release(slot, keep=kept or number % 3 != 0)
        for change in rig.cache.take_changes():
            told = np.frombuffer(change.ids, dtype="<u4").tolist()
            ends = range((change.kept_tokens or 0) + 1, len(told) + 1)
            prefixes = {tuple(told[:end]) for end in ends}
            held = held | prefixes if change.kept_tokens is None else held - prefixes
        kept_now = {
            tuple(row[:end])
            for row, length in zip(rig.cache._ids.tolist(), rig.cache._lengths.tolist(), strict=True)
            for end in range(1, length + 1)
        }
        assert held == kept_now
