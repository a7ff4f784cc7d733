"""bucket: each worker has a range of lengths; the ranges follow what comes, and yield when work piles up."""

from __future__ import annotations

import random
from collections import Counter

from smg.policies.base import RouteRequest
from smg.policies.bucket import Bucket
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot

FLEET = tuple(WorkerSnapshot(f"w{n}", f"u{n}") for n in range(4))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def bucket(clock, **fields) -> Bucket:
    return Bucket(RoutingSettings(policy="bucket", **fields), random.Random(1), clock=clock)


def tokens(length: int) -> RouteRequest:
    return RouteRequest("m", bytes(4 * length))


def trained(**fields) -> tuple[Bucket, Clock]:
    clock, rng = Clock(), random.Random(2)
    policy = bucket(clock, **fields)
    for _ in range(1000):
        policy.pick(FLEET, tokens(rng.randrange(1, 1000)))
    clock.now_s = 5.0
    return policy, clock


def test_longer_prompts_go_to_later_workers_once_lengths_are_known():
    policy, _ = trained(balance_abs_threshold=10**9)
    picked = [int(policy.pick(FLEET, tokens(length)).id[1:]) for length in (1, 300, 600, 800, 950, 5000)]
    assert picked == sorted(picked)
    assert picked[0] == 0
    assert picked[-1] == 3


def test_the_ranges_have_about_equal_sums():
    policy, _ = trained(balance_abs_threshold=10**9)
    rng, sums = random.Random(3), Counter()
    for _ in range(2000):
        length = rng.randrange(1, 1000)
        sums[policy.pick(FLEET, tokens(length)).id] += length
    assert max(sums.values()) <= 1.25 * min(sums.values())


def test_the_ranges_follow_what_comes():
    policy, clock = trained(balance_abs_threshold=10**9)
    assert policy.pick(FLEET, tokens(990)).id == "w3"
    for _ in range(1100):
        policy.pick(FLEET, tokens(random.Random(4).randrange(10_000, 20_000)))
    clock.now_s = 10.0
    assert policy.pick(FLEET, tokens(990)).id == "w0"


def test_work_that_piles_up_goes_to_the_worker_that_got_the_least():
    policy, _ = trained(balance_abs_threshold=1000, balance_rel_threshold=1.5)
    counts = Counter(policy.pick(FLEET, tokens(900)).id for _ in range(400))
    assert max(counts.values()) <= 1.6 * min(counts.values())
    assert len(counts) == 4


def test_characters_count_where_there_are_no_tokens():
    policy, _ = trained(balance_abs_threshold=10**9)
    assert policy.pick(FLEET, RouteRequest("m", text_length=5000)).id == "w3"
    assert policy.pick(FLEET, RouteRequest("m", text_length=5)).id == "w0"


def test_before_anything_is_known_the_least_busy_is_picked():
    fleet = (WorkerSnapshot("a", "a", 1, saturation=0.5), WorkerSnapshot("b", "b"))
    assert bucket(Clock()).pick(fleet, tokens(10)).id == "b"


def test_fewer_workers_than_ranges_are_no_trouble():
    policy, _ = trained(balance_abs_threshold=10**9)
    policy.pick(FLEET, tokens(5))
    assert policy.pick(FLEET[:2], tokens(5000)).id == "w1"
    assert policy.pick(FLEET[:1], tokens(5000)).id == "w0"


def test_lengths_of_nothing_at_all_are_no_trouble():
    clock = Clock()
    policy = bucket(clock)
    for second in range(0, 60, 6):
        clock.now_s = float(second)
        assert policy.pick(FLEET, RouteRequest("m")) in FLEET
