"""Every policy: picks only what it is given, the same with the same chance, and lets nobody starve."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import InvalidRequest
from smg.policies import POLICIES, make_policy
from smg.policies.base import RouteRequest
from smg.types.worker import WorkerSnapshot

ROUTE = RouteRequest("m", prompt_ids=b"\1\0\0\0" * 4096)

EVERY_POLICY = pytest.mark.parametrize("name", sorted(POLICIES))


def workers(count: int, **fields) -> tuple[WorkerSnapshot, ...]:
    return tuple(WorkerSnapshot(f"w{index}", f"grpc://h:{index + 1}", **fields) for index in range(count))


def picks(policy, snapshots, times: int) -> list[str]:
    return [policy.pick(snapshots, ROUTE).id for _ in range(times)]


@EVERY_POLICY
@given(
    loads=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 3)), min_size=1, max_size=8), seed=st.integers()
)
def test_only_the_given_are_picked_whatever_their_load(name, loads, seed):
    snapshots = tuple(
        WorkerSnapshot(f"w{index}", "u", inflight_requests=inflight, saturation=saturation)
        for index, (inflight, saturation) in enumerate(loads)
    )
    policy = make_policy(name, random.Random(seed))
    for _ in range(5):
        assert policy.pick(snapshots, ROUTE) in snapshots


@EVERY_POLICY
def test_the_same_seed_gives_the_same_picks(name):
    one, other = (picks(make_policy(name, random.Random(7)), workers(5), 50) for _ in range(2))
    assert one == other


@EVERY_POLICY
def test_a_single_worker_is_picked(name):
    assert picks(make_policy(name), workers(1), 3) == ["w0"] * 3


@EVERY_POLICY
def test_equal_workers_get_about_equal_shares(name):
    counts = Counter(picks(make_policy(name, random.Random(1)), workers(4), 4000))
    assert len(counts) == 4
    # 4 sigma of a fair choice is 110; a policy in turns is exact.
    assert all(abs(count - 1000) < 110 for count in counts.values())


@EVERY_POLICY
def test_a_worker_that_left_or_came_confuses_nobody(name):
    policy = make_policy(name, random.Random(1))
    assert picks(policy, workers(5), 7)
    assert set(picks(policy, workers(2), 40)) == {"w0", "w1"}
    assert set(picks(policy, workers(6), 200)) == {f"w{index}" for index in range(6)}


def test_an_unknown_policy_is_refused_with_those_that_are_known():
    with pytest.raises(
        InvalidRequest, match="unknown policy 'rr'; known: least_load, power_of_two, random, round_robin"
    ):
        make_policy("rr")
