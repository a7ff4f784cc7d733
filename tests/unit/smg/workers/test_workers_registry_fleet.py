"""WorkerRegistry in a fleet that changes: breakers, drains, tokenizers, ranks, bounds."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from smg.errors import INTERNAL, INVALID_ARGUMENT, EngineError, Overloaded, WorkerUnavailable
from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.workers.breaker import BreakerOptions, BreakerState
from smg.workers.registered import WorkerState
from smg.workers.registry import WorkerRegistry
from smg_proto.engine.v1 import card_pb2, work_pb2
from tests.unit.smg.workers.test_workers_registry import QUICK, ROUTE, Opener, add, url

BREAKERS = BreakerOptions(failures=2, successes=1, open_s=3600)
FAULT = EngineError("broken", engine_code=INTERNAL)
REFUSAL = EngineError("your fault", engine_code=INVALID_ARGUMENT)
POLICY = make_policy("round_robin")


@pytest.fixture
def opener():
    return Opener()


@pytest.fixture
async def registry(opener):
    registry = WorkerRegistry(QUICK, BREAKERS, open_worker=opener)
    registry.start()
    yield registry
    await registry.close()


def fail(worker, times=2):
    for _ in range(times):
        worker.on_outcome(FAULT)


async def test_a_worker_whose_requests_fail_gets_no_more_and_stays_healthy(registry, opener):
    (entry, worker), (_, other) = await add(registry, opener, 1), await add(registry, opener, 2)
    fail(worker)
    assert {registry.place("m", POLICY, ROUTE) for _ in range(4)} == {other}
    assert entry.is_ready
    assert entry.reason == "its circuit breaker is open"
    fail(other)
    with pytest.raises(WorkerUnavailable, match="2 with circuit breaker open") as caught:
        registry.place("m", POLICY, ROUTE)
    assert (caught.value.code, caught.value.retry_after_s) == ("no_available_workers", 1)
    # The model is still served, as far as the list of models goes.
    assert registry.models()["m"][0].is_ready


async def test_refusals_do_not_open_it(registry, opener):
    entry, worker = await add(registry, opener, 1)
    for _ in range(20):
        worker.on_outcome(REFUSAL)
    assert entry.breaker.is_closed


async def test_an_open_breaker_is_tried_after_its_time_one_request_at_a_time(opener):
    registry = WorkerRegistry(QUICK, dataclasses.replace(BREAKERS, open_s=0.001), open_worker=opener)
    registry.start()
    entry, worker = await add(registry, opener, 1)
    fail(worker)
    assert await registry.wait_ready(5, "m")
    assert entry.breaker.state is BreakerState.HALF_OPEN
    assert registry.place("m", POLICY, ROUTE) is worker
    worker.set_inflight(1)
    assert registry.snapshots("m") == ()
    # It was refused with a 4xx: the place is free again, and nothing else has changed.
    worker.on_outcome(REFUSAL)
    worker.set_inflight(0)
    assert len(registry.snapshots("m")) == 1
    worker.on_outcome(None)
    assert entry.breaker.is_closed
    await registry.close()


async def test_a_removed_worker_has_no_breaker_any_more(registry, opener):
    entry, worker = await add(registry, opener, 1)
    registry.remove(entry.id)
    fail(worker)
    assert entry.breaker.is_closed
    assert registry.workers() == ()


async def test_health_that_returns_lets_it_be_tried_at_once(registry, opener):
    entry, worker = await add(registry, opener, 1)
    fail(worker)
    worker.go_down()
    assert entry.breaker.state is BreakerState.OPEN
    worker.come_up()
    assert entry.breaker.state is BreakerState.HALF_OPEN
    assert registry.place("m", POLICY, ROUTE) is worker


async def test_a_drain_has_an_end(opener):
    registry = WorkerRegistry(dataclasses.replace(QUICK, drain_s=0.001), open_worker=opener)
    registry.start()
    entry, worker = await add(registry, opener, 1)
    worker.set_inflight(1)
    gone = asyncio.Event()
    registry.on_change(lambda: None if registry.workers() else gone.set())
    registry.remove(entry.id, drain=True)
    await gone.wait()
    await registry.close()
    assert worker.is_closed


async def test_a_worker_is_taken_out_of_service_and_back(registry, opener):
    entry, worker = await add(registry, opener, 1)
    registry.drain(entry.id, is_draining=True)
    assert entry.state is WorkerState.DRAINING
    worker.set_inflight(0)
    assert registry.workers() == (entry,)
    registry.drain(entry.id, is_draining=False)
    assert registry.place("m", POLICY, ROUTE) is worker


async def test_one_that_was_to_go_is_kept_when_it_is_wanted_again(registry, opener):
    entry, worker = await add(registry, opener, 1)
    worker.set_inflight(1)
    registry.remove(entry.id, drain=True)
    registry.drain(entry.id, is_draining=False)
    worker.set_inflight(0)
    assert registry.workers() == (entry,)


async def test_there_are_no_more_workers_than_allowed():
    registry = WorkerRegistry(dataclasses.replace(QUICK, max_workers=2))
    registry.add(url(1))
    entry = registry.add(url(2))
    with pytest.raises(Overloaded, match="--max-workers"):
        registry.add(url(3))
    registry.remove(entry.id)
    registry.add(url(3))


async def test_urls_are_kept_in_one_form(registry):
    entry = registry.add("10.0.0.1:30000")
    assert entry.url == "grpc://10.0.0.1:30000"
    assert registry.find("grpc://10.0.0.1:30000") is entry
    assert registry.add("grpc://HOST:1/").url == "grpc://host:1"


def serves(worker, model, tokenizer="", instance="i"):
    worker.known = card_pb2.DescribeResponse(
        models=[card_pb2.ModelCard(id=model, tokenizer_sha256=tokenizer)], instance_id=instance
    )
    worker.come_up()


async def test_a_worker_that_returns_with_another_model_gets_no_request_for_the_old_one(registry, opener):
    _, worker = await add(registry, opener, 1)
    worker.go_down()
    serves(worker, "other", instance="j")
    assert registry.snapshots("m") == ()
    assert set(registry.models()) == {"other"}
    assert registry.place("other", POLICY, RouteRequest("other")) is worker
    assert registry.snapshots("other")[0].instance_id == "j"


async def test_a_prompt_never_goes_to_a_worker_with_another_tokenizer(registry, opener):
    added = [await add(registry, opener, number, ready=False) for number in (1, 2, 3)]
    (old, old_worker), (_, new_worker), (_, third) = added
    serves(old_worker, "m", "old")
    serves(new_worker, "m", "new")
    assert registry.card("m").tokenizer_sha256 == "old"
    assert registry.place("m", POLICY, ROUTE, tokenizer="old") is old_worker
    serves(third, "m", "new")
    # The new ones are the majority; what was prepared for the old one is not sent to them.
    assert registry.card("m").tokenizer_sha256 == "new"
    assert "tokenizer" in old.reason
    assert len(registry.snapshots("m")) == 2
    with pytest.raises(WorkerUnavailable):
        registry.place("m", POLICY, ROUTE, tokenizer="old")
    # An engine that tells no fingerprint is taken at its word.
    serves(old_worker, "m", "")
    assert len(registry.snapshots("m")) == 3
    assert registry.card("m").tokenizer_sha256 == "new"
    assert old.reason == ""


async def test_a_worker_is_used_for_no_model_but_those_it_was_named_for(registry, opener):
    entry = registry.add(url(1), only_models=["m"])
    worker = await opener.opened(url(1))
    serves(worker, "other")
    assert registry.models() == {}
    assert (entry.state, entry.is_ready) == (WorkerState.UNHEALTHY, False)
    assert entry.reason == "it serves other, and is to be used for m alone"
    serves(worker, "m")
    assert registry.place("m", POLICY, ROUTE) is worker


async def test_ranks_are_placed_one_by_one(registry, opener):
    entry, worker = await add(registry, opener, 1, ready=False)
    counts, sent = [3, 1], []

    class Ranked(type(worker)):
        ranks = 2

        def rank_inflight_requests(self, rank):
            return counts[rank]

        def generate_choices(self, requests, listeners):
            sent.extend(requests)
            return [1]

    worker.__class__ = Ranked
    worker.come_up()
    assert [(each.id, each.url, each.inflight_requests) for each in registry.snapshots("m")] == [
        (f"{entry.id}@0", f"{url(1)}@0", 3),
        (f"{entry.id}@1", f"{url(1)}@1", 1),
    ]
    least = registry.place("m", make_policy("least_load"), ROUTE)
    assert (least.id, least.url) == (f"{entry.id}@1", f"{url(1)}@1")
    least.generate_choices([work_pb2.Generate()], [None])
    assert sent[0].data_parallel_rank == 1
    assert registry.constraints("m").keys() == {f"{entry.id}@0", f"{entry.id}@1"}
    other = registry.place("m", POLICY, ROUTE, frozenset([f"{entry.id}@1"]))
    assert other.id == f"{entry.id}@0"
    counts[0] = 0
    worker.on_load_change()
    assert [each.inflight_requests for each in registry.snapshots("m")] == [0, 1]
