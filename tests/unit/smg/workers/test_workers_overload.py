"""Overload: from which load on a worker gets no more, and what counts as use of its memory."""

import pytest

from smg.workers.overload import OverloadLimits
from smg_proto.engine.v1 import card_pb2

LIMITS = OverloadLimits(waiting=8, kv_usage=0.8)


@pytest.mark.parametrize(
    ("load", "is_over"),
    [
        ({}, False),
        ({"waiting": 7}, False),
        ({"waiting": 8}, True),
        ({"kv_used_tokens": 790, "kv_capacity_tokens": 1000}, False),
        ({"kv_used_tokens": 800, "kv_capacity_tokens": 1000}, True),
        # Cached prefixes make room.
        ({"kv_used_tokens": 1000, "kv_evictable_tokens": 300, "kv_capacity_tokens": 1000}, False),
        # An engine without a bound has no share of it in use.
        ({"kv_used_tokens": 10**9}, False),
    ],
)
def test_the_bounds(load, is_over):
    assert LIMITS.is_over(card_pb2.Load(**load)) is is_over
    assert not OverloadLimits().is_over(card_pb2.Load(**load))
