"""Discovery: the registry holds what the sources want, and what the operator has named is not theirs to remove."""

from __future__ import annotations

import asyncio
import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from smg.workers.discovery.base import Found, SourceFailed
from smg.workers.registered import WorkerState
from smg.workers.registry import WorkerRegistry
from tests.unit.smg.workers.discovery.sources import QUICK, TestSource, discovering, urls
from tests.unit.smg.workers.test_workers_registry import Opener

A, B, C = (f"grpc://10.0.0.{number}:1" for number in (1, 2, 3))


async def test_workers_come_and_go_as_the_source_tells():
    source = TestSource()
    async with discovering(source) as registry:
        await source.give(A, Found(B, {"zone": "z"}))
        assert urls(registry) == [A, B]
        assert [(worker.origin, dict(worker.labels)) for worker in registry.workers()] == [
            ("test", {}), ("test", {"zone": "z"})
        ]  # fmt: skip
        await source.give(B, C)
        assert urls(registry) == [B, C]
        await source.give()
        assert urls(registry) == []


async def test_named_workers_are_not_the_sources_to_remove():
    source, registry = TestSource(), WorkerRegistry(QUICK)
    registry.add(A, origin="settings")
    registry.add(B)
    async with discovering(source, registry=registry):
        await source.give(A, B, C)
        await source.give()
        assert [(worker.url, worker.origin) for worker in registry.workers()] == [(A, "settings"), (B, "api")]


async def test_a_worker_of_two_sources_stays_until_neither_wants_it():
    first, second = TestSource("first"), TestSource("second")
    async with discovering(first, second) as registry:
        await second.give(A)
        await first.give(A, B)
        await second.give()
        assert urls(registry) == [A, B]
        await second.give(B)
        await first.give()
        assert urls(registry) == [B]


async def test_a_source_that_fails_changes_nothing_says_so_once_and_is_run_again(caplog):
    source = TestSource()
    async with discovering(source) as registry:
        await source.give(A)
        for _ in range(3):
            await source.fail(SourceFailed("the resolver is down"))
        await source.fail(ZeroDivisionError("a fault of ours"))
        await source.give(A, B)
        assert urls(registry) == [A, B]
    assert caplog.text.count("the resolver is down; what it found before is kept") == 1
    assert "a fault of ours" in caplog.text
    assert source.runs == 5


async def test_another_identity_at_the_same_address_is_another_worker():
    source = TestSource()
    async with discovering(source) as registry:
        await source.give(Found(A, identity="pod-1"))
        before = registry.workers()[0].id
        await source.give(Found(A, identity="pod-1"))
        assert registry.workers()[0].id == before
        await source.give(Found(A, identity="pod-2"))
        assert urls(registry) == [A]
        assert registry.workers()[0].id != before


async def test_other_labels_and_models_are_taken_over():
    source = TestSource()
    async with discovering(source) as registry:
        await source.give(A)
        await source.give(Found(A, {"zone": "z"}, frozenset(["m"])))
        worker = registry.workers()[0]
        assert (dict(worker.labels), worker.only_models) == ({"zone": "z"}, {"m"})


async def test_a_worker_that_an_operator_removes_stays_away_until_it_was_not_wanted_once():
    source = TestSource()
    async with discovering(source) as registry:
        await source.give(A, B)
        registry.remove(registry.find(A).id)
        await source.give(A, B)
        assert urls(registry) == [B]
        await source.give(B)
        await source.give(A, B)
        assert urls(registry) == [B, A]


async def busy_worker(registry, opener, source, url=A):
    registry.start()
    await source.give(url)
    worker = await opener.opened(url)
    worker.come_up()
    worker.set_inflight(1)
    return registry.find(url), worker


async def test_a_worker_that_is_not_wanted_ends_its_work_first_and_stays_if_it_is_wanted_again():
    source, opener = TestSource(), Opener()
    async with discovering(source, registry=WorkerRegistry(QUICK, open_worker=opener)) as registry:
        entry, worker = await busy_worker(registry, opener, source)
        await source.give()
        assert entry.state is WorkerState.DRAINING
        await source.give(A)
        assert entry.state is WorkerState.READY
        await source.give()
        worker.set_inflight(0)
        assert urls(registry) == []
        # Gone by our own doing: it is welcome again.
        await source.give(A)
        assert urls(registry) == [A]


async def test_a_drain_that_an_operator_has_asked_for_is_not_undone():
    source, opener = TestSource(), Opener()
    async with discovering(source, registry=WorkerRegistry(QUICK, open_worker=opener)) as registry:
        entry, worker = await busy_worker(registry, opener, source)
        registry.remove(entry.id, drain=True)
        await source.give(A)
        assert entry.state is WorkerState.DRAINING
        worker.set_inflight(0)
        await source.give(A)
        assert urls(registry) == []


async def test_a_lost_worker_hurries_its_source_and_no_other():
    source, other, opener = TestSource(), TestSource(), Opener()
    async with discovering(source, other, registry=WorkerRegistry(QUICK, open_worker=opener)) as registry:
        _, worker = await busy_worker(registry, opener, source)
        await other.give()
        source.hurry.clear()
        worker.on_load_change()
        assert not source.hurry.is_set()
        worker.go_down()
        assert source.hurry.is_set()
        assert not other.hurry.is_set()


async def test_more_workers_than_allowed_are_left_out_and_said(caplog):
    source = TestSource()
    options = dataclasses.replace(QUICK, max_workers=2)
    async with discovering(source, registry=WorkerRegistry(options)) as registry:
        for _ in range(3):
            await source.give(A, B, C)
        assert urls(registry) == [A, B]
        await source.give(A, C)
        assert urls(registry) == [A, C]
    assert caplog.text.count(f"--max-workers allows; {C} and others are left out") == 1


SETS = st.lists(st.sets(st.sampled_from([A, B, C])), max_size=8)


@settings(max_examples=60, deadline=None)
@given(SETS, SETS)
def test_whatever_came_before_the_last_words_of_all_sources_count(ones, others):
    async def run():
        first, second = TestSource(), TestSource()
        async with discovering(first, second) as registry:
            for one, other in zip(ones, others, strict=False):
                await first.give(*one)
                await second.give(*other)
            last = min(len(ones), len(others))
            wanted = (ones[last - 1] | others[last - 1]) if last else set()
            assert set(urls(registry)) == wanted

    asyncio.run(run())
