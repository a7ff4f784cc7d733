"""consistent_hashing and prefix_hash: keys stay where they are when the fleet changes, and overload passes on."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import WorkerUnavailable
from smg.policies.base import RouteRequest
from smg.policies.consistent_hashing import ConsistentHashing
from smg.policies.prefix_hash import PrefixHash
from smg.policies.ring import Ring
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot
from tests.examples import examples
from tests.unit.smg.policies.fleet import Fleet

KEYS = [f"key-{number}".encode() for number in range(1000)]


def workers(indices, loads=None) -> tuple[WorkerSnapshot, ...]:
    loads = loads or {}
    return tuple(WorkerSnapshot(f"w{n}", f"grpc://h{n}:1", loads.get(n, 0)) for n in indices)


def homes(ring: Ring, fleet) -> dict[bytes, str]:
    return {key: ring.place(fleet, key).id for key in KEYS}


def hashing(**fields) -> ConsistentHashing:
    return ConsistentHashing(RoutingSettings(**fields), random.Random(1))


@examples(7)
@given(size=st.integers(2, 40), seed=st.integers(0, 1000))
def test_a_worker_that_comes_takes_its_share_and_moves_nothing_else(size, seed):
    names = random.Random(seed).sample(range(10_000), size + 1)
    ring = Ring()
    before = homes(ring, workers(names[:-1]))
    after = homes(ring, workers(names))
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} <= {f"w{names[-1]}"}
    # 1/n of the keys, and the unevenness of a hash over a thousand of them.
    assert len(moved) <= len(KEYS) / size * 1.5 + 20


@examples(7)
@given(size=st.integers(2, 40), seed=st.integers(0, 1000))
def test_a_worker_that_goes_moves_only_its_own_keys_which_return_with_it(size, seed):
    rng = random.Random(seed)
    names = rng.sample(range(10_000), size)
    gone = rng.choice(names)
    ring = Ring()
    before = homes(ring, workers(names))
    during = homes(ring, workers([name for name in names if name != gone]))
    assert all(before[key] == during[key] for key in KEYS if before[key] != f"w{gone}")
    assert homes(ring, workers(names)) == before


def test_routers_agree_whatever_order_they_learned_of_the_workers_in():
    fleet = workers(range(12))
    shuffled = tuple(random.Random(1).sample(fleet, 12))
    assert homes(Ring(), fleet) == homes(Ring(), shuffled)


@pytest.mark.parametrize("size", [3, 10, 100], ids=str)
def test_keys_are_spread_evenly(size):
    ring, fleet = Ring(), workers(range(size))
    counts = Counter(ring.place(fleet, f"{number}".encode()).id for number in range(200 * size))
    assert max(counts.values()) <= 200 * 1.45


def test_substitutes_are_other_workers_in_an_order_that_stays():
    ring, other, fleet = Ring(), Ring(), workers(range(10))
    for key in KEYS[:50]:
        home = ring.place(fleet, key)
        ids = [each.id for each in ring.substitutes(fleet, key)]
        assert home.id not in ids
        assert len(set(ids)) == len(ids) >= 3
        assert other.place(fleet, key) == home
        assert [each.id for each in other.substitutes(fleet, key)] == ids


def test_workers_of_the_same_address_are_told_apart():
    fleet = tuple(WorkerSnapshot(f"w{n}", "u") for n in range(4))
    assert len(set(homes(Ring(), fleet).values())) == 4


def test_the_target_goes_before_the_key_and_counts_ready_workers_from_zero():
    fleet = workers((3, 5, 8))
    assert [
        hashing().pick(fleet, RouteRequest("m", routing_key="k", target_worker=n)).id for n in range(3)
    ] == [
        "w3",
        "w5",
        "w8",
    ]


@pytest.mark.parametrize("target", [3, 99, -1], ids=str)
def test_a_target_that_no_worker_has_is_unavailable(target):
    with pytest.raises(WorkerUnavailable, match="x-smg-target-worker names no ready worker") as caught:
        hashing().pick(workers(range(3)), RouteRequest("m", target_worker=target))
    assert caught.value.code == "no_available_workers"


def test_the_key_goes_before_the_caller_and_the_caller_before_the_prompt():
    policy, fleet, rng = hashing(), workers(range(20)), random.Random(1)

    def prompt() -> bytes:
        return rng.randbytes(4096)

    same = prompt()
    assert (
        len({policy.pick(fleet, RouteRequest("m", prompt(), "k", caller=str(n))).id for n in range(20)}) == 1
    )
    assert len({policy.pick(fleet, RouteRequest("m", prompt(), caller="c")).id for _ in range(20)}) == 1
    assert len({policy.pick(fleet, RouteRequest("m", same[:1024] + prompt())).id for _ in range(20)}) == 1
    assert len({policy.pick(fleet, RouteRequest("m", prompt())).id for _ in range(20)}) > 5
    assert len({policy.pick(fleet, RouteRequest("m")).id for _ in range(20)}) > 5


def test_without_a_bound_a_key_stays_however_busy_its_worker_is():
    home = hashing().pick(workers(range(5)), RouteRequest("m", routing_key="k")).id
    busy = workers(range(5), {int(home[1:]): 1000})
    assert hashing().pick(busy, RouteRequest("m", routing_key="k")).id == home


def test_with_a_bound_no_worker_gets_more_than_the_factor_of_the_mean():
    policy = hashing(consistent_hashing_load_factor=1.25)
    fleet, rng = Fleet(10, 500), random.Random(1)
    for _ in range(3000):
        fleet.place(policy, RouteRequest("m", routing_key=f"{int(rng.expovariate(0.2))}"))
        loads = [each.inflight_requests for each in fleet.pictures()]
        assert max(loads) <= (sum(loads) + 1) / 10 * 1.25 + 2


def prefix_hash(**fields) -> PrefixHash:
    return PrefixHash(RoutingSettings(**fields), random.Random(1))


def test_prompts_that_begin_alike_go_to_the_same_worker():
    policy, rng, fleet = prefix_hash(prefix_token_count=100), random.Random(1), workers(range(20))
    start = rng.randbytes(400)
    assert len({policy.pick(fleet, RouteRequest("m", start + rng.randbytes(800))).id for _ in range(20)}) == 1
    assert (
        len({policy.pick(fleet, RouteRequest("m", start[4:] + rng.randbytes(800))).id for _ in range(20)}) > 5
    )


def test_the_hint_is_hashed_in_place_of_the_prompt_and_the_key_in_place_of_both():
    policy, rng, fleet = prefix_hash(), random.Random(1), workers(range(20))
    hint = rng.randbytes(2048)
    assert (
        len({policy.pick(fleet, RouteRequest("m", rng.randbytes(2048), hint_ids=hint)).id for _ in range(20)})
        == 1
    )
    keyed = {policy.pick(fleet, RouteRequest("m", b"", "k", None, rng.randbytes(2048))).id for _ in range(20)}
    assert len(keyed) == 1


def test_an_overloaded_worker_passes_on_to_the_same_substitute():
    policy, request = prefix_hash(), RouteRequest("m", b"prompt__" * 100)
    home = policy.pick(workers(range(8)), request)
    busy = workers(range(8), {int(home.id[1:]): 40})
    picks = [policy.explain(busy, request) for _ in range(5)]
    assert {pick.worker.id for pick in picks} & {home.id} == set()
    assert len({pick.worker.id for pick in picks}) == 1
    assert picks[0].reason == f"substitute for {home.id}, which has 40 requests"


def test_a_worker_is_overloaded_only_beyond_the_factor_and_the_margin():
    request = RouteRequest("m", b"prompt__" * 100)
    home = prefix_hash().pick(workers(range(8)), request)
    busy = workers(range(8), {int(home.id[1:]): 9})
    assert prefix_hash().pick(busy, request).id == home.id
    assert prefix_hash(prefix_hash_balance_abs_threshold=0).pick(busy, request).id != home.id
    loads = {n: 100 for n in range(8)}
    evenly = workers(range(8), {**loads, int(home.id[1:]): 115})
    assert prefix_hash().pick(evenly, request).id == home.id


def test_when_all_substitutes_are_overloaded_the_least_busy_is_picked():
    request, fleet = RouteRequest("m", b"prompt__" * 128), workers(range(32))
    ring = Ring()
    near = [ring.place(fleet, request.prompt_ids), *ring.substitutes(fleet, request.prompt_ids)]
    busy = workers(range(32), {int(each.id[1:]): 500 for each in near})
    pick = prefix_hash().explain(busy, request)
    assert pick.worker.id not in {each.id for each in near}
    assert pick.reason.startswith("least busy")
