"""Loads: the idlest worker is found whole or in part, fairly, and a sample leaves nobody out for good."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.policies.loads import SAMPLE, busiest_allowed, busy, idlest, sample, total_busy
from smg.types.worker import WorkerSnapshot


def fleet(size: int, load=lambda _: 0) -> tuple[WorkerSnapshot, ...]:
    return tuple(WorkerSnapshot(f"w{n}", "u", load(n), saturation=load(n) / 100) for n in range(size))


@given(
    loads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=64),
    seed=st.integers(),
)
def test_the_idlest_is_the_lowest_by_saturation_then_by_requests(loads, seed):
    snapshots = [
        WorkerSnapshot(str(n), "u", ours, saturation=full / 4) for n, (full, ours) in enumerate(loads)
    ]
    worker = idlest(snapshots, random.Random(seed))
    assert (worker.saturation * 4, worker.inflight_requests) == min(loads)


@given(
    size=st.integers(65, 400),
    lowest=st.sets(st.integers(0, 399), min_size=1, max_size=70),
    seed=st.integers(),
)
def test_in_a_large_fleet_too_nobody_is_idler(size, lowest, seed):
    snapshots = fleet(size, lambda n: 0 if n in lowest else 5)
    assert idlest(snapshots, random.Random(seed)).saturation == min(each.saturation for each in snapshots)


@pytest.mark.parametrize("size", [8, 200], ids=str)
def test_equals_are_picked_alike(size):
    rng, snapshots = random.Random(1), fleet(size)
    counts = Counter(idlest(snapshots, rng).id for _ in range(100 * size))
    assert len(counts) == size
    assert max(counts.values()) <= 150


@pytest.mark.parametrize("size", [1, SAMPLE, SAMPLE + 1, 100, 1000, 5000], ids=str)
def test_a_sample_is_of_the_promised_size_and_everybody_is_in_some(size):
    rng, snapshots = random.Random(1), fleet(size)
    seen = Counter()
    for _ in range(1000):
        part = sample(snapshots, rng)
        assert min(size, SAMPLE // 2) <= len(part) <= SAMPLE
        seen.update(each.id for each in part)
    assert len(seen) == size or size > 1000


@given(numbers=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_requests_are_ours_or_what_the_engine_told_whichever_is_more(numbers):
    snapshots = [WorkerSnapshot("w", "u", *each) for each in numbers]
    assert [busy(each) for each in snapshots] == [max(ours, run + wait) for ours, run, wait in numbers]
    assert total_busy(snapshots) == sum(map(busy, snapshots))


def test_the_bound_counts_the_request_to_be_placed():
    assert busiest_allowed(fleet(4, lambda _: 7), 1.5, 0) == 1.5 * 7.25
    assert busiest_allowed(fleet(4, lambda _: 7), 1.5, 10) == 17.25
