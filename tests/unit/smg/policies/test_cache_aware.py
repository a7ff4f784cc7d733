"""cache_aware: prompts go where they are cached, for as long as that is worth the queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.policies.base import RouteRequest
from smg.policies.cache_aware import CacheAware
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot
from tests.examples import examples
from tests.unit.smg.policies.fleet import Fleet

RNG = random.Random(5)
PLACED = 2500


def policy_of(seed: int = 1, **fields) -> CacheAware:
    return CacheAware(RoutingSettings(**fields), random.Random(seed))


def ids_of(tokens: int, rng: random.Random = RNG) -> bytes:
    return rng.randbytes(4 * tokens)


def worker(name: str, inflight: int = 0, saturation: float = 0.0, instance: str = "") -> WorkerSnapshot:
    return WorkerSnapshot(name, name, inflight, saturation=saturation, instance_id=instance)


def idle(count: int) -> tuple[WorkerSnapshot, ...]:
    return tuple(worker(f"w{index}") for index in range(count))


@pytest.mark.parametrize("running", [40, 200, 800], ids=str)
def test_a_prefix_that_all_share_does_not_pin_the_fleet_to_one_worker(running):
    rng, policy, fleet = random.Random(1), policy_of(), Fleet(8, running)
    allowance = RoutingSettings().balance_abs_threshold
    shared = ids_of(2048, rng)
    for _ in range(PLACED):
        fleet.place(policy, RouteRequest("m", shared + ids_of(rng.randrange(16, 200), rng)))
        loads = [each.inflight_requests for each in fleet.pictures()]
        assert max(loads) - min(loads) <= max(allowance, running / 8 / 2) + 1
    # With more requests than the allowance of all workers but one, all of them work, and alike.
    if running > 7 * allowance:
        assert max(fleet.counts.values()) <= 1.1 * PLACED / 8
        assert min(fleet.counts.values()) >= 0.9 * PLACED / 8


@examples(6)
@given(seed=st.integers(0, 10_000), sessions=st.integers(1, 40), turns=st.integers(2, 6))
def test_a_session_stays_where_its_history_is_when_loads_are_equal(seed, sessions, turns):
    rng, policy = random.Random(seed), policy_of(seed)
    shared = ids_of(512, rng)
    histories = [shared + ids_of(rng.randrange(500, 1500), rng) for _ in range(sessions)]
    homes = [policy.pick(idle(6), RouteRequest("m", history)).id for history in histories]
    for _ in range(turns):
        for number in rng.sample(range(sessions), sessions):
            histories[number] += ids_of(rng.randrange(50, 400), rng)
            assert policy.pick(idle(6), RouteRequest("m", histories[number])).id == homes[number]


def test_a_whole_match_is_worth_the_allowance_in_requests_and_no_more():
    policy, ids = policy_of(balance_abs_threshold=10), ids_of(1024)
    fleet = (worker("a"), worker("b"))
    home = policy.pick(fleet, RouteRequest("m", ids)).id
    other = "b" if home == "a" else "a"
    busier = (worker(home, 9), worker(other))
    assert policy.pick(busier, RouteRequest("m", ids)).id == home
    too_busy = (worker(home, 11), worker(other))
    assert policy.pick(too_busy, RouteRequest("m", ids)).id == other


def test_half_a_match_is_worth_a_quarter():
    policy, ids = policy_of(balance_abs_threshold=10), ids_of(512)
    home = policy.pick((worker("a"), worker("b")), RouteRequest("m", ids)).id
    other = "b" if home == "a" else "a"
    half = RouteRequest("m", ids + ids_of(512))
    assert policy.pick((worker(home, 2), worker(other)), half).id == home
    fresh = RouteRequest("m", ids + ids_of(512))
    assert policy.pick((worker(home, 3), worker(other)), fresh).id == other


def test_under_heavy_load_the_allowance_grows_with_the_mean():
    policy, ids = policy_of(balance_abs_threshold=1, balance_rel_threshold=2.0), ids_of(1024)
    home = policy.pick((worker("a"), worker("b")), RouteRequest("m", ids)).id
    other = "b" if home == "a" else "a"
    assert policy.pick((worker(home, 140), worker(other, 60)), RouteRequest("m", ids)).id == home


def test_saturation_counts_where_it_is_known_so_that_a_bigger_worker_gets_more():
    policy, ids = policy_of(balance_abs_threshold=4), ids_of(1024)
    home = policy.pick((worker("a"), worker("b")), RouteRequest("m", ids)).id
    other = "b" if home == "a" else "a"
    # 40 of 400 and 8 of 40: the home has more requests, and is the less busy one.
    big = (worker(home, 40, 0.1), worker(other, 8, 0.2))
    assert policy.pick(big, RouteRequest("m", ids)).id == home


def test_a_match_below_the_threshold_does_not_count():
    policy, ids = policy_of(cache_threshold=0.5, balance_abs_threshold=1000), ids_of(256)
    home = policy.pick((worker("a"), worker("b")), RouteRequest("m", ids)).id
    other = "b" if home == "a" else "a"
    pick = policy.explain((worker(home, 1), worker(other)), RouteRequest("m", ids + ids_of(1000)))
    assert pick.worker.id == other
    assert pick.reason.startswith("least busy")


def test_without_any_match_the_least_busy_is_picked():
    fleet = tuple(worker(f"w{n}", abs(n - 3) + 1, (abs(n - 3) + 1) / 10) for n in range(8))
    assert policy_of().pick(fleet, RouteRequest("m", ids_of(500))).id == "w3"


def test_a_restarted_worker_is_forgotten():
    policy, ids = policy_of(balance_abs_threshold=1000), ids_of(1024)
    before = (worker("a", 0, instance="1"), worker("b", 1, instance="1"))
    assert policy.pick(before, RouteRequest("m", ids)).id == "a"
    busier = (worker("a", 5, instance="1"), worker("b", 1, instance="1"))
    assert policy.pick(busier, RouteRequest("m", ids)).id == "a"
    restarted = (worker("a", 5, instance="2"), worker("b", 1, instance="1"))
    assert policy.pick(restarted, RouteRequest("m", ids)).id == "b"


def test_the_hint_of_the_caller_stands_in_for_the_prompt():
    policy, hint = policy_of(balance_abs_threshold=1000), ids_of(512)
    home = policy.pick(idle(4), RouteRequest("m", ids_of(900), hint_ids=hint)).id
    busier = tuple(worker(each.id, 5 * (each.id == home)) for each in idle(4))
    assert policy.pick(busier, RouteRequest("m", ids_of(900), hint_ids=hint)).id == home


def test_models_do_not_share_prefixes():
    policy, ids = policy_of(), ids_of(1024)
    home = policy.pick(idle(2), RouteRequest("m", ids)).id
    busier = tuple(worker(each.id, int(each.id == home)) for each in idle(2))
    assert policy.pick(busier, RouteRequest("n", ids)).id != home


def test_what_an_engine_stored_removed_or_cleared_is_known():
    policy, ids = policy_of(balance_abs_threshold=1000), ids_of(1024)
    fleet = (worker("a"), worker("b", 3), worker("c", 3))
    keys = policy.keys("m", ids)
    policy.stored("b", "", keys)
    assert "100% of the prompt cached" in policy.explain(fleet, RouteRequest("m", ids)).reason
    policy.removed("b", keys)
    assert policy.pick(fleet, RouteRequest("m", ids)).id == "a"
    policy.cleared("a")
    policy.stored("c", "", keys)
    assert policy.pick(fleet, RouteRequest("m", ids)).id == "c"
    policy.cleared("c")
    assert policy.pick(fleet, RouteRequest("m", ids)).id == "a"


def test_words_about_workers_that_nobody_knows_are_harmless():
    policy = policy_of()
    policy.removed("ghost", [1, 2])
    policy.cleared("ghost")
    policy.stored("ghost", "1", policy.keys("m", ids_of(200)))
    assert policy.pick(idle(2), RouteRequest("m", ids_of(200))) in idle(2)


def test_a_prefix_that_the_whole_large_fleet_holds_still_goes_to_calm_workers():
    policy, shared = policy_of(), ids_of(2048)
    keys = policy.keys("m", shared)
    fleet = tuple(worker(f"w{n}", n, n / 1000) for n in range(1000))
    for each in fleet:
        policy.stored(each.id, "", keys)
    picked = [policy.pick(fleet, RouteRequest("m", shared + ids_of(64))) for _ in range(200)]
    assert max(int(each.id[1:]) for each in picked) < 100
    assert len({each.id for each in picked}) > 10


def test_the_reason_tells_share_and_load():
    policy, ids = policy_of(), ids_of(1024)
    policy.pick(idle(1), RouteRequest("m", ids))
    assert (
        policy.explain(idle(1), RouteRequest("m", ids)).reason
        == "100% of the prompt cached, load 0.00, mean 0.00"
    )
