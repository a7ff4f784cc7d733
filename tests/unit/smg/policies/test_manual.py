"""manual and the override: a key belongs to one worker; what is remembered is bounded in number and in time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.policies.manual import Manual
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def manual(clock=None, **fields) -> Manual:
    return Manual(RoutingSettings(policy="manual", **fields), random.Random(1), clock=clock or Clock())


def workers(*names: str, loads=None) -> tuple[WorkerSnapshot, ...]:
    loads = loads or {}
    return tuple(
        WorkerSnapshot(name, name, loads.get(name, 0), saturation=loads.get(name, 0) / 10) for name in names
    )


def keyed(key: str, model: str = "m") -> RouteRequest:
    return RouteRequest(model, routing_key=key)


def test_new_workers_move_no_key():
    policy = manual()
    homes = {f"k{n}": policy.pick(workers("a", "b"), keyed(f"k{n}")).id for n in range(50)}
    assert set(homes.values()) == {"a", "b"}
    more = workers("z", "a", "y", "b", "c")
    assert all(policy.pick(more, keyed(key)).id == home for key, home in homes.items())


def test_a_key_goes_to_one_substitute_and_returns_home():
    policy = manual()
    home = policy.pick(workers("a", "b", "c", "d"), keyed("k")).id
    rest = workers(*sorted({"a", "b", "c", "d"} - {home}))
    substitute = policy.pick(rest, keyed("k")).id
    assert {policy.pick(rest, keyed("k")).id for _ in range(10)} == {substitute}
    assert policy.explain(rest, keyed("k")).reason == f"the key's substitute while {home} is away"
    assert policy.pick(workers("a", "b", "c", "d"), keyed("k")).id == home


def test_when_home_and_substitute_are_away_there_is_another_substitute():
    policy, names = manual(), {"a", "b", "c"}
    home = policy.pick(workers(*sorted(names)), keyed("k")).id
    substitute = policy.pick(workers(*sorted(names - {home})), keyed("k")).id
    last = workers(*sorted(names - {home, substitute}))
    assert policy.pick(last, keyed("k")) == last[0]


def test_min_load_gives_new_keys_to_the_least_busy():
    fleet = workers("a", "b", "c", loads={"a": 3, "b": 1, "c": 2})
    policy = manual(assignment_mode="min_load")
    assert {policy.pick(fleet, keyed(f"k{n}")).id for n in range(5)} == {"b"}


def test_min_group_gives_new_keys_to_those_with_the_fewest():
    policy = manual(assignment_mode="min_group")
    counts = Counter(
        policy.pick(workers("a", "b", "c", loads={"a": 9}), keyed(f"k{n}")).id for n in range(30)
    )
    assert set(counts.values()) == {10}


def test_delegate_has_nobody_to_ask_under_manual_and_takes_the_least_busy():
    policy = manual(assignment_mode="delegate")
    assert policy.pick(workers("a", "b", loads={"a": 1}), keyed("k")).id == "b"


def test_without_a_key_nothing_is_remembered():
    policy = manual()
    assert {policy.pick(workers("a", "b", "c"), RouteRequest("m")).id for _ in range(50)} == {"a", "b", "c"}
    assert len(policy._pins["m"]) == 0


def test_a_key_that_was_idle_too_long_is_new_again():
    clock = Clock()
    policy = manual(clock, assignment_mode="min_load", max_idle_secs=100)
    assert policy.pick(workers("a", "b", loads={"b": 1}), keyed("k")).id == "a"
    clock.now_s += 99
    assert policy.pick(workers("a", "b", loads={"a": 1}), keyed("k")).id == "a"
    clock.now_s += 101
    assert policy.pick(workers("a", "b", loads={"a": 1}), keyed("k")).id == "b"


def test_idle_keys_are_swept_bit_by_bit():
    clock = Clock()
    policy = manual(clock, max_idle_secs=100, eviction_interval_secs=10)
    for number in range(600):
        policy.pick(workers("a", "b"), keyed(f"k{number}"))
    clock.now_s += 200
    left = []
    for _ in range(4):
        policy.pick(workers("a", "b"), keyed("fresh"))
        left.append(len(policy._pins["m"]))
    assert left == [345, 89, 1, 1]


def test_the_number_of_keys_is_bounded_and_the_longest_unused_goes_first():
    policy = manual(max_routing_keys=3, assignment_mode="min_group")
    for key in ("a", "b", "c", "a", "d"):
        policy.pick(workers("w", "x"), keyed(key))
    pins = policy._pins["m"]
    assert list(pins._pins) == ["c", "a", "d"]
    assert sum(pins.counts.values()) == 3


def test_models_have_their_own_keys():
    policy = manual(assignment_mode="min_load")
    assert policy.pick(workers("a", "b", loads={"b": 1}), keyed("k", "m")).id == "a"
    assert policy.pick(workers("a", "b", loads={"a": 1}), keyed("k", "n")).id == "b"


@pytest.mark.parametrize("mode", [None, "delegate"], ids=str)
def test_the_override_lets_the_policy_place_new_keys(mode):
    settings = RoutingSettings(policy="round_robin", routing_key_override=True, assignment_mode=mode)
    policy = make_policy(settings, random.Random(1))
    fleet = workers("a", "b", "c")
    order = [policy.pick(fleet, keyed(key)).id for key in ("x", "y", "x", "z", "y")]
    assert order == ["a", "b", "a", "c", "b"]
    assert [policy.pick(fleet, RouteRequest("m")).id for _ in range(3)] == ["a", "b", "c"]


def test_hashing_by_key_needs_no_override():
    settings = RoutingSettings(policy="consistent_hashing", routing_key_override=True)
    fleet = workers("a", "b", "c")
    assert make_policy(settings).pick(fleet, RouteRequest("m", routing_key="k", target_worker=2)).id == "c"
