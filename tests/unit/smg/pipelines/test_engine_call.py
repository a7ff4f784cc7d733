"""EngineCall: a form that the answer must have is only asked of workers that enforce it."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from smg.errors import InvalidRequest, WorkerUnavailable
from smg.pipelines.answer import Answer
from smg.pipelines.engine_call import EngineCall, RetryOptions, Work
from smg.pipelines.plan import Group
from smg.pipelines.retry_budget import RetryBudget
from smg.policies import make_policy
from smg.types.context import RequestContext
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.pipelines.remembering import RememberingSink
from tests.unit.smg.workers.fake_worker import FakeWorker

JSON, REGEX = "json_schema", "regex"


class Scripted(FakeWorker):
    """Enforces some kinds. What it is asked for it takes, or refuses as a worker that is gone."""

    def __init__(self, worker_id, url, kinds, *, is_lost):
        super().__init__(worker_id, url)
        self.known.models[0].capabilities.constraints.extend(kinds)
        self.asked = asyncio.Event()
        self.asked_count = 0
        self.is_lost = is_lost

    def generate_choices(self, requests, listeners):
        self.asked.set()
        self.asked_count += 1
        if self.is_lost:
            raise WorkerUnavailable("gone")
        return range(len(requests))

    def abort(self, sequence):
        pass


@asynccontextmanager
async def workers(*kinds, ready=(), lost=()):
    """A router's view of one worker for each list of kinds; `ready` has the numbers of those that are up."""
    opened = {}

    async def open_worker(worker_id, url, options):
        number = int(url.rpartition(":")[2]) - 1
        opened[number] = Scripted(worker_id, url, kinds[number], is_lost=number in lost)
        return opened[number]

    registry = WorkerRegistry(WorkerOptions(), open_worker=open_worker)
    registry.start()
    for number in range(len(kinds)):
        registry.add(f"grpc://127.0.0.1:{number + 1}")
    while len(opened) < len(kinds):  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number, worker in opened.items():
        worker.come_up()
        if ready and number not in ready:
            worker.go_down()
    try:
        yield registry, [opened[number] for number in range(len(kinds))]
    finally:
        await registry.close()


def run(registry, kind, *, attempts=1, budget=None):
    retries = RetryOptions(max_attempts=attempts, initial_backoff_s=0.0, max_backoff_s=0.0)
    call = EngineCall(registry, make_policy("round_robin"), retries, 60, lambda route: None, budget=budget)
    choice = SimpleNamespace(sequence=0, is_finished=False, has_ended=False, is_abandoned=False)
    work = Work(
        "chat",
        "m",
        asyncio.get_running_loop().time(),
        b"",
        lambda: [Group([work_pb2.Generate()], [choice])],
        kind,
    )
    return call.run(work, Answer("id", 0, "m", RememberingSink()), RequestContext("r"))


@pytest.mark.parametrize(("kinds", "told"), [([], "none"), ([REGEX, "ebnf"], "ebnf, regex")], ids=str)
async def test_a_form_that_no_worker_enforces_is_refused_before_any_is_asked(kinds, told):
    async with workers(kinds, kinds) as (registry, all_workers):
        with pytest.raises(InvalidRequest, match=f"json_schema cannot be enforced .*: {told}$") as caught:
            await run(registry, JSON)
        assert (caught.value.status, caught.value.code) == (400, "constraint_not_supported")
        assert not any(worker.asked_count for worker in all_workers)


async def test_a_form_goes_to_the_workers_that_enforce_it_and_to_no_others():
    async with workers([REGEX], [JSON], [REGEX]) as (registry, (first, second, third)):
        for _ in range(3):
            second.asked.clear()
            task = asyncio.ensure_future(run(registry, JSON))
            await second.asked.wait()
            task.cancel()
        assert (first.asked_count, second.asked_count, third.asked_count) == (0, 3, 0)


async def test_a_worker_that_would_enforce_it_and_is_down_is_waited_for_not_replaced():
    async with workers([REGEX], [JSON], ready=[0]) as (registry, (first, _)):
        with pytest.raises(WorkerUnavailable, match="no worker is ready"):
            await run(registry, JSON)
        assert first.asked_count == 0


async def test_further_attempts_keep_to_the_workers_that_enforce_it():
    async with workers([REGEX], [JSON], lost=[1]) as (registry, (first, second)):
        with pytest.raises(WorkerUnavailable, match="gone"):
            await run(registry, JSON, attempts=3)
        assert (first.asked_count, second.asked_count) == (0, 3)


async def test_there_are_no_further_attempts_when_all_requests_together_had_too_many():
    budget = RetryBudget(0.01)
    while budget.take(0):
        pass
    async with workers([], lost=[0]) as (registry, (worker,)):
        with pytest.raises(WorkerUnavailable, match="gone"):
            await run(registry, "", attempts=3, budget=budget)
        assert worker.asked_count == 1


async def test_without_a_form_a_worker_that_enforces_none_will_do():
    async with workers([]) as (registry, (worker,)):
        task = asyncio.ensure_future(run(registry, ""))
        await worker.asked.wait()
        task.cancel()


@pytest.mark.parametrize(("initial_s", "expected"), [(0.05, 30.0), (0.0, 0.0)])
def test_the_pause_after_very_many_attempts_is_the_longest(initial_s, expected):
    assert RetryOptions(initial_backoff_s=initial_s, jitter=0.0).pause_s(5000) == expected
