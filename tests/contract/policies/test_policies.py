"""Every policy: picks only what it is given, the same with the same chance, tells why, and bounds its work."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import InvalidRequest, WorkerUnavailable
from smg.policies import POLICIES, make_policy
from smg.policies.base import RouteRequest
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot
from tests.examples import examples

EVERY_POLICY = pytest.mark.parametrize("name", sorted(POLICIES))
# The first worker gets everything: that is its promise.
SPREADING = pytest.mark.parametrize("name", sorted(set(POLICIES) - {"passthrough"}))
# Those that look at every worker to find the least busy one.
SCANNING = {"least_load"}


def workers(count: int, **fields) -> tuple[WorkerSnapshot, ...]:
    return tuple(WorkerSnapshot(f"w{index}", f"grpc://h:{index + 1}", **fields) for index in range(count))


def request_of(number: int, tokens: int = 300) -> RouteRequest:
    """A request with its own prompt and its own key."""
    ids = random.Random(number).randbytes(4 * tokens)
    return RouteRequest("m", prompt_ids=ids, routing_key=f"key-{number}", text_length=tokens * 4)


REQUESTS = [request_of(number) for number in range(4000)]


def picks(policy, snapshots, times: int) -> list[str]:
    return [policy.pick(snapshots, REQUESTS[number]).id for number in range(times)]


class Counted(tuple):
    """Pictures that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        Counted.looks += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        for snapshot in super().__iter__():
            Counted.looks += 1
            yield snapshot


@EVERY_POLICY
@examples(8)
@given(
    loads=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 3)), min_size=1, max_size=8), seed=st.integers()
)
def test_only_the_given_are_picked_whatever_their_load(name, loads, seed):
    snapshots = tuple(
        WorkerSnapshot(f"w{index}", "u", inflight_requests=inflight, saturation=saturation)
        for index, (inflight, saturation) in enumerate(loads)
    )
    policy = make_policy(name, random.Random(seed))
    for number in (1, 1, 2, 1, 3):
        assert policy.pick(snapshots, REQUESTS[number]) in snapshots


@EVERY_POLICY
@examples(8)
@given(
    present=st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=12),
    seed=st.integers(0, 9),
    override=st.booleans(),
)
def test_a_worker_that_is_not_ready_is_never_picked_however_they_come_and_go(name, present, seed, override):
    everyone = workers(8)
    policy = make_policy(RoutingSettings(policy=name, routing_key_override=override), random.Random(seed))
    for turn, indices in enumerate(present):
        ready = tuple(everyone[index] for index in sorted(indices))
        for number in (0, 1, turn):
            assert policy.pick(ready, REQUESTS[number]) in ready


@EVERY_POLICY
def test_the_same_seed_gives_the_same_picks(name):
    one, other = (picks(make_policy(name, random.Random(7)), workers(100), 200) for _ in range(2))
    assert one == other


@EVERY_POLICY
def test_a_single_worker_is_picked(name):
    assert picks(make_policy(name), workers(1), 3) == ["w0"] * 3


@EVERY_POLICY
def test_without_workers_the_error_is_the_same_for_all(name):
    policy = make_policy(name)
    with pytest.raises(WorkerUnavailable, match="no worker is ready for model 'm'"):
        policy.pick((), REQUESTS[0])
    with pytest.raises(WorkerUnavailable):
        policy.explain((), REQUESTS[0])


@EVERY_POLICY
def test_a_request_of_which_nothing_is_known_is_placed(name):
    policy, snapshots = make_policy(name), workers(3)
    assert policy.pick(snapshots, RouteRequest("m")) in snapshots


@EVERY_POLICY
def test_the_reason_belongs_to_the_pick_and_holds_nothing_of_the_caller(name):
    silent, telling = (make_policy(name, random.Random(3)) for _ in range(2))
    snapshots = tuple(
        WorkerSnapshot(f"w{n}", f"u{n}", inflight_requests=n, saturation=n / 9) for n in range(5)
    )
    for number in (*range(20), *range(20)):
        pick = telling.explain(snapshots, REQUESTS[number])
        assert pick.worker is silent.pick(snapshots, REQUESTS[number])
        assert pick.reason
        assert "{" not in pick.reason
        assert "key-" not in pick.reason


@SPREADING
def test_equal_workers_get_about_equal_shares_of_different_requests(name):
    counts = Counter(picks(make_policy(name, random.Random(1)), workers(4), 4000))
    assert len(counts) == 4
    # 4 sigma of a fair choice is 110; a hash cuts the keys into parts that are a little uneven by themselves.
    most_off = 250 if name in {"consistent_hashing", "prefix_hash"} else 110
    assert all(abs(count - 1000) < most_off for count in counts.values())


@SPREADING
def test_a_worker_that_left_or_came_confuses_nobody(name):
    policy = make_policy(name, random.Random(1))
    assert picks(policy, workers(5), 7)
    assert set(picks(policy, workers(2), 40)) <= {"w0", "w1"}
    policy = make_policy(name, random.Random(1))
    assert set(picks(policy, workers(2), 40)) == {"w0", "w1"}
    fresh = [policy.pick(workers(6), REQUESTS[number]).id for number in range(1000, 1400)]
    assert set(fresh) == {f"w{index}" for index in range(6)}


@EVERY_POLICY
def test_a_pick_among_a_thousand_looks_at_few_of_them(name):
    policy, rng = make_policy(name, random.Random(1)), random.Random(2)
    loads = [rng.randrange(64) for _ in range(1000)]
    fleet = Counted(
        WorkerSnapshot(f"w{n}", f"u{n}", inflight_requests=load, saturation=load / 64)
        for n, load in enumerate(loads)
    )
    picks(policy, fleet, 50)
    Counted.looks = 0
    picks(policy, fleet, 100)
    # A scan reads all once or twice. The others read a sample, and the workers that they come to think of.
    assert Counted.looks / 100 <= (3000 if name in SCANNING else 200)


def test_an_unknown_policy_is_refused_with_those_that_are_known():
    with pytest.raises(
        InvalidRequest, match="unknown policy 'rr'; known: bucket, cache_aware, consistent_hashing"
    ):
        make_policy("rr")


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"consistent_hashing", "manual"}))
def test_the_override_pins_routing_keys_under_every_policy(name):
    policy = make_policy(RoutingSettings(policy=name, routing_key_override=True), random.Random(1))
    first = policy.pick(workers(8), REQUESTS[0])
    busier = tuple(
        WorkerSnapshot(
            each.id,
            each.url,
            inflight_requests=50 * (each.id == first.id),
            saturation=float(each.id == first.id),
        )
        for each in workers(8)
    )
    again = [policy.pick(busier, RouteRequest("m", REQUESTS[n].prompt_ids, "key-0")).id for n in range(1, 9)]
    assert again == [first.id] * 8
