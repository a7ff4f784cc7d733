"""What each policy promises beyond the contract of all."""

from __future__ import annotations

import random
from collections import Counter

from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.types.worker import WorkerSnapshot


def worker(name: str, inflight: int = 0, saturation: float = 0.0) -> WorkerSnapshot:
    return WorkerSnapshot(name, "u", inflight_requests=inflight, saturation=saturation)


def picks(name: str, snapshots, times: int, model: str = "m") -> list[str]:
    policy = make_policy(name, random.Random(1))
    return [policy.pick(snapshots, RouteRequest(model)).id for _ in range(times)]


def test_round_robin_takes_turns_whatever_the_load():
    snapshots = (worker("a", 9, 2.0), worker("b"), worker("c"))
    assert picks("round_robin", snapshots, 7) == ["a", "b", "c", "a", "b", "c", "a"]


def test_round_robin_counts_each_model_for_itself():
    policy = make_policy("round_robin")
    snapshots = (worker("a"), worker("b"))
    order = [policy.pick(snapshots, RouteRequest(model)).id for model in ("m", "n", "m", "n")]
    assert order == ["a", "a", "b", "b"]


def test_round_robin_forgets_rather_than_grow_without_end():
    policy = make_policy("round_robin")
    for number in range(5000):
        policy.pick((worker("a"),), RouteRequest(f"model-{number}"))
    assert len(policy._positions) <= 1024


def test_least_load_takes_the_lowest_saturation_then_the_fewest_requests():
    assert set(picks("least_load", (worker("a", 0, 0.5), worker("b", 9, 0.25)), 5)) == {"b"}
    assert set(picks("least_load", (worker("a", 3, 0.5), worker("b", 2, 0.5)), 5)) == {"b"}


def test_least_load_spreads_over_those_that_are_equally_idle():
    snapshots = (worker("a", 1, 0.5), worker("b", 1, 0.5), worker("c", 2, 0.5))
    assert set(picks("least_load", snapshots, 50)) == {"a", "b"}


def test_power_of_two_never_takes_the_busiest_of_two():
    assert set(picks("power_of_two", (worker("a", 0, 0.9), worker("b", 0, 0.1)), 50)) == {"b"}
    assert set(picks("power_of_two", (worker("a", 1, 0.5), worker("b", 2, 0.5)), 50)) == {"a"}


def test_power_of_two_still_uses_workers_in_the_middle():
    snapshots = tuple(worker(name, 0, load) for name, load in (("a", 0.1), ("b", 0.2), ("c", 0.3)))
    counts = Counter(picks("power_of_two", snapshots, 3000))
    # The best of two among three: a in 2/3 of the draws, b in 1/3, c never.
    assert counts["c"] == 0
    assert 1800 < counts["a"] < 2200


def test_random_takes_the_busy_as_well():
    assert set(picks("random", (worker("a", 9, 9.0), worker("b")), 50)) == {"a", "b"}
