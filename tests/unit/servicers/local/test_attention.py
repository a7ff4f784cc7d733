"""Attention plans: every row is attended once, in few calls, without reading far beyond what it needs.

What comes out is checked against the plain formula in test_model.py.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servicers.local.attention import TILE_ROWS, CachedPlan, CausalMask, Segment, _decode_groups
from servicers.local.kv_cache import KVCache
from servicers.local.packed_attention import _spans

CPU = torch.device("cpu")


def groups(*segments: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(first slot, slots, keys) of the groups of segments (slot, past)."""
    parts = [Segment(slot, start, 1, past) for start, (slot, past) in enumerate(segments)]
    return [(g.first_slot, g.slots, g.keys) for g in _decode_groups(parts, torch.float32, CPU)]


def test_neighbours_of_like_length_are_one_call():
    assert groups((0, 100), (1, 120), (2, 90)) == [(0, 3, 121)]


def test_the_order_of_segments_does_not_change_the_calls():
    assert groups((2, 90), (0, 100), (1, 120)) == groups((0, 100), (1, 120), (2, 90))


def test_a_hole_is_bridged_when_that_is_cheaper_than_a_call():
    assert groups((0, 50), (2, 50)) == [(0, 3, 51)]
    assert groups((0, 1000), (9, 1000)) == [(0, 1, 1001), (9, 1, 1001)]


def test_a_long_sequence_does_not_make_short_ones_long():
    assert groups((0, 20), (1, 20), (2, 4000), (3, 20)) == [(0, 2, 21), (2, 1, 4001), (3, 1, 21)]


@given(st.dictionaries(st.integers(0, 63), st.integers(0, 5000), min_size=1, max_size=64))
def test_every_decoding_slot_is_in_one_group_that_is_long_enough(pasts):
    covered = {}
    for first, slots, keys in groups(*pasts.items()):
        for slot in range(first, first + slots):
            covered.setdefault(slot, []).append(keys)
    for slot, past in pasts.items():
        assert len(covered[slot]) == 1
        assert covered[slot][0] > past


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_packed_tiles_cover_every_row_once_with_the_keys_it_needs(lengths):
    begins = [sum(lengths[:i]) for i, length in enumerate(lengths) for _ in range(length)]
    row = 0
    for start, end, first_key in _spans(lengths):
        assert start == row
        assert 0 < end - start <= TILE_ROWS
        assert first_key <= begins[start]
        # A tile that starts inside a long sequence holds nothing else, so no foreign keys are read for it.
        assert first_key == begins[start]
        row = end
    assert row == sum(lengths)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_short_sequences_share_tiles(lengths):
    assert len(_spans(lengths)) <= 2 * sum(lengths) / TILE_ROWS + 1


def test_tiles_share_one_mask_that_grows_with_the_longest():
    causal = CausalMask(torch.float32, CPU)
    for rows, keys in [(3, 3), (TILE_ROWS, 5000), (2, 700)]:
        mask = causal.tile(rows, keys)
        assert mask is not None
        expected = torch.arange(keys)[None] > torch.arange(keys - rows, keys)[:, None]
        assert torch.equal(mask == float("-inf"), expected)
        assert (mask[~expected] == 0).all()
    assert causal.tile(1, 10) is None


@pytest.mark.parametrize(
    "segment", [Segment(2, 0, 1, 0), Segment(-1, 0, 1, 0), Segment(0, 0, 1, 8), Segment(1, 0, 5, 4)]
)
def test_a_segment_outside_the_cache_is_refused(segment):
    cache = KVCache(layers=1, slots=2, slot_tokens=8, kv_heads=1, head_dim=2, dtype=torch.float32, device=CPU)
    with pytest.raises(ValueError, match="does not fit 2 slots of 8 tokens"):
        CachedPlan([segment], cache, CausalMask(torch.float32, CPU))
