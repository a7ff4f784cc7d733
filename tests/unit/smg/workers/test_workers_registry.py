"""WorkerRegistry: who is known, who is ready, and what a request is told when nobody is."""

from __future__ import annotations

import asyncio

import pytest

from smg.errors import AlreadyExists, InvalidRequest, ModelNotFound, NotFound, Unsupported, WorkerUnavailable
from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.workers.base import ProtocolMismatch
from smg.workers.options import WorkerOptions
from smg.workers.probe import ProbeFailed
from smg.workers.registered import WorkerState
from smg.workers.registry import WorkerRegistry
from tests.contract.workers.engine_script import Changes
from tests.unit.smg.workers.fake_worker import FakeWorker

QUICK = WorkerOptions(backoff_min_s=0.001, backoff_max_s=0.001)
ROUTE = RouteRequest("m")


class Opener:
    """Stands in for the probe: hands out FakeWorkers, or raises what a test wants."""

    def __init__(self) -> None:
        self.workers: dict[str, FakeWorker] = {}
        self.models: dict[str, tuple[str, ...]] = {}
        self.faults: dict[str, list[Exception]] = {}
        self.changes = Changes()

    async def __call__(self, worker_id, url, options):
        if self.faults.get(url):
            self.changes.notify()
            raise self.faults[url].pop()
        worker = FakeWorker(worker_id, url, self.models.get(url, ("m",)))
        self.workers[url] = worker
        self.changes.notify()
        return worker

    async def opened(self, url: str) -> FakeWorker:
        await self.changes.until(lambda: url in self.workers)
        # One turn of the loop later the registry has it too.
        await asyncio.sleep(0)
        return self.workers[url]


@pytest.fixture
def opener():
    return Opener()


@pytest.fixture
async def registry(opener):
    registry = WorkerRegistry(QUICK, open_worker=opener)
    registry.start()
    yield registry
    await registry.close()


def url(number: int) -> str:
    return f"grpc://127.0.0.1:{number}"


async def add(registry, opener, number: int, *, ready: bool = True):
    entry = registry.add(url(number))
    worker = await opener.opened(url(number))
    if ready:
        worker.come_up()
    return entry, worker


async def test_ids_are_stable_and_urls_unique(registry):
    first, second = registry.add(url(1)), registry.add(url(2))
    assert [entry.id for entry in registry.workers()] == [first.id, second.id]
    assert registry.worker(first.id) is first
    for same in (url(1), url(1) + "/"):
        with pytest.raises(AlreadyExists, match=first.id):
            registry.add(same)
    registry.remove(first.id)
    assert registry.add(url(1)).id not in (first.id, second.id)


async def test_a_url_of_another_scheme_is_refused_with_what_is_allowed(registry):
    with pytest.raises(InvalidRequest, match=r"grpc://host:port or grpcs://host:port.*'ftp'"):
        registry.add("ftp://127.0.0.1:1")


async def test_an_unknown_id_is_not_found(registry):
    with pytest.raises(NotFound, match="worker-99"):
        registry.remove("worker-99")


async def test_before_any_worker_was_heard_of_a_request_is_told_to_wait(registry, opener):
    opener.faults[url(1)] = [ProbeFailed("nobody there")] * 1000
    registry.add(url(1))
    await opener.changes.until(lambda: len(opener.faults[url(1)]) < 999)
    with pytest.raises(WorkerUnavailable, match="1 connecting") as caught:
        registry.place("m", make_policy("round_robin"), ROUTE)
    assert caught.value.code == "no_available_workers"
    # Clients are not told addresses, nor causes, which may name them.
    assert "127.0.0.1" not in caught.value.message
    assert "nobody there" not in caught.value.message


async def test_a_model_that_nobody_serves_is_not_found(registry, opener):
    await add(registry, opener, 1)
    with pytest.raises(ModelNotFound, match="'x'; served: m"):
        registry.place("x", make_policy("round_robin"), RouteRequest("x"))
    assert registry.card("x") is None


async def test_a_model_whose_workers_are_lost_is_remembered(registry, opener):
    entry, worker = await add(registry, opener, 1)
    worker.go_down()
    assert registry.models() == {"m": (entry,)}
    assert registry.card("m").id == "m"
    assert registry.snapshots("m") == ()
    with pytest.raises(WorkerUnavailable, match="1 connecting") as caught:
        registry.place("m", make_policy("round_robin"), ROUTE)
    assert "127.0.0.1" not in caught.value.message
    worker.come_up()
    assert registry.place("m", make_policy("round_robin"), ROUTE) is worker


async def test_place_leaves_out_the_excluded(registry, opener):
    (first, _), (_, other) = await add(registry, opener, 1), await add(registry, opener, 2)
    policy = make_policy("round_robin")
    assert {registry.place("m", policy, ROUTE, frozenset((first.id,))) for _ in range(4)} == {other}
    with pytest.raises(WorkerUnavailable, match="excluded"):
        registry.place("m", policy, ROUTE, frozenset(entry.id for entry in registry.workers()))


async def test_only_workers_of_the_model_are_picked(registry, opener):
    opener.models[url(2)] = ("other", "both")
    opener.models[url(1)] = ("m", "both")
    (_, one), (_, two) = await add(registry, opener, 1), await add(registry, opener, 2)
    policy = make_policy("round_robin")
    assert {registry.place("m", policy, ROUTE) for _ in range(4)} == {one}
    assert {registry.place("both", policy, RouteRequest("both")) for _ in range(4)} == {one, two}


async def test_snapshots_show_the_load_of_the_moment_and_cost_nothing_without_change(registry, opener):
    (_, worker), _ = await add(registry, opener, 1), await add(registry, opener, 2)
    before = registry.snapshots("m")
    assert registry.snapshots("m") is before
    worker.set_inflight(5)
    after = registry.snapshots("m")
    assert [snapshot.inflight_requests for snapshot in after] == [5, 0]
    assert [snapshot.saturation for snapshot in after] == [0.5, 0.0]
    assert after[1] is before[1]
    assert before[0].inflight_requests == 0


async def test_a_removed_worker_is_closed_and_gone(registry, opener):
    entry, worker = await add(registry, opener, 1)
    registry.remove(entry.id)
    assert registry.workers() == ()
    assert registry.models() == {}
    await registry.close()
    assert worker.is_closed


async def test_a_drained_worker_takes_nothing_new_and_goes_with_its_last_request(registry, opener):
    entry, worker = await add(registry, opener, 1)
    worker.set_inflight(2)
    registry.remove(entry.id, drain=True)
    assert entry.state is WorkerState.DRAINING
    assert registry.snapshots("m") == ()
    with pytest.raises(WorkerUnavailable, match="draining"):
        registry.place("m", make_policy("round_robin"), ROUTE)
    worker.set_inflight(1)
    assert registry.workers() == (entry,)
    worker.set_inflight(0)
    assert registry.workers() == ()
    await registry.close()
    assert worker.is_closed


async def test_draining_an_idle_worker_removes_it_at_once(registry, opener):
    entry, _ = await add(registry, opener, 1)
    registry.remove(entry.id, drain=True)
    assert registry.workers() == ()


async def test_a_worker_that_fails_to_open_is_tried_again(registry, opener):
    opener.faults[url(1)] = [ProbeFailed("later")] * 3
    entry, worker = await add(registry, opener, 1)
    assert entry.worker is worker
    assert entry.state is WorkerState.READY


async def test_a_worker_of_an_unserved_kind_stays_listed_with_its_reason(registry, opener):
    opener.faults[url(1)] = [Unsupported("not in this release")]
    entry = registry.add(url(1))
    changed = asyncio.Event()
    registry.on_change(changed.set)
    await changed.wait()
    assert (entry.state, entry.reason) == (WorkerState.CONNECTING, "not in this release")


async def test_an_address_that_changes_its_protocol_is_probed_again_and_keeps_its_models(registry, opener):
    entry, worker = await add(registry, opener, 1)
    del opener.workers[url(1)]
    worker.break_with(ProtocolMismatch("another server"))
    other = await opener.opened(url(1))
    assert entry.worker is other
    assert registry.models() == {"m": (entry,)}


async def test_a_broken_connection_is_logged_and_run_again(registry, opener, caplog):
    entry, worker = await add(registry, opener, 1)
    again = Changes()
    run = worker.run

    async def noticed():
        again.notify()
        await run()

    worker.run = noticed
    worker.break_with(ZeroDivisionError("a fault of ours"))
    await again.until(lambda: worker.is_closed)
    assert "a fault of ours" in caplog.text
    assert entry.worker is worker


async def test_wait_ready_waits_for_the_model_and_gives_up_in_time(registry, opener):
    entry, worker = await add(registry, opener, 1, ready=False)
    waiting = asyncio.create_task(registry.wait_ready(5, "m"))
    await asyncio.sleep(0)
    worker.come_up()
    assert await waiting
    assert not await registry.wait_ready(0.001, "other")
    assert entry.is_ready


async def test_callbacks_hear_of_every_change_until_they_end_it(registry, opener):
    calls: list[int] = []
    end = registry.on_change(lambda: calls.append(len(registry.workers())))
    entry, _ = await add(registry, opener, 1)
    heard = len(calls)
    assert heard >= 2
    registry.remove(entry.id)
    assert calls[-1] == 0
    end()
    registry.add(url(2))
    assert len(calls) == heard + 1


async def test_close_ends_every_task(opener):
    before = asyncio.all_tasks()
    registry = WorkerRegistry(QUICK, open_worker=opener)
    registry.add(url(1))
    registry.start()
    for number in range(2, 6):
        registry.add(url(number))
    registry.remove(registry.workers()[0].id)
    await opener.opened(url(5))
    await registry.close()
    assert asyncio.all_tasks() == before


async def test_a_request_that_finds_nobody_has_the_lost_workers_looked_for(opener):
    # Without it, nobody would look again within the hour.
    patient = WorkerOptions(backoff_min_s=3600, backoff_max_s=3600, hurried_pause_s=0.001)
    opener.faults[url(1)] = [ProbeFailed("nobody there")]
    registry = WorkerRegistry(patient, open_worker=opener)
    registry.start()
    entry = registry.add(url(1))
    try:
        await opener.changes.until(lambda: not opener.faults[url(1)])
        while entry.worker is None:
            with pytest.raises(WorkerUnavailable):
                registry.place("m", make_policy("round_robin"), ROUTE)
            await asyncio.sleep(0.001)
    finally:
        await registry.close()
