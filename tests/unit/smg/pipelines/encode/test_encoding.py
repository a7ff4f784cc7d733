"""Many inputs of one request: so many at a time, tried again elsewhere, and ended together by a failure or the clock."""

import asyncio
from types import SimpleNamespace

import pytest

from smg.errors import DeadlineExceeded, EngineError, UnusableScores
from smg.pipelines.encode.encoding import Encoding, Tally
from smg.pipelines.encode.job_call import JobCall
from smg.pipelines.placed_job import PlacedJobs
from smg.settings import EncodingSettings
from smg.types.context import ANONYMOUS
from smg_proto.embedding.v1 import common_pb2
from smg_proto.engine.v1 import work_pb2

CONTEXT = SimpleNamespace(routing_key="", target_worker=None, caller=ANONYMOUS)
RETRIES = SimpleNamespace(max_attempts=3, pause_s=lambda _: 0)


class Worker:
    """Answers, fails or says nothing, as its script says for each input's first id."""

    def __init__(self, name, script):
        self.id = self.url = name
        self.script = script
        self.waiting = {}
        self.aborted = []
        self.seen = []
        self.most = 0

    def embed(self, request, listener):
        key = request.input_ids[0]
        self.seen.append(key)
        self.waiting[len(self.seen)] = key
        self.most = max(self.most, len(self.waiting))
        asyncio.get_running_loop().call_soon(self._answer, len(self.seen), key, listener)
        return len(self.seen)

    def _answer(self, sequence, key, listener):
        outcome = self.script.get(key, [float(key)])
        if outcome is None:
            return
        self.waiting.pop(sequence, None)
        if isinstance(outcome, list):
            listener.on_result(work_pb2.Embedded(values=outcome, prompt_tokens=1))
        else:
            listener.on_failed(outcome)

    def abort(self, sequence):
        self.waiting.pop(sequence, None)
        self.aborted.append(sequence)


class Registry:
    """Gives workers in turn."""

    def __init__(self, *workers):
        self.workers = workers
        self.turn = 0

    def place(self, model, policy, asked, excluded=frozenset()):
        usable = [worker for worker in self.workers if worker.id not in excluded] or self.workers
        self.turn += 1
        return usable[self.turn % len(usable)]


def encoding(*workers, retried=None, **settings):
    told = retried if retried is not None else []
    call = JobCall(PlacedJobs(Registry(*workers), None, RETRIES, told.append))
    return Encoding(None, call, EncodingSettings(**settings))


def work(*keys):
    return [work_pb2.Embed(input_ids=bytes([key, 0, 0, 0]), model="m") for key in keys]


def lost():
    return EngineError("lost", engine_code=14, can_retry=True)


async def test_answers_are_in_order_and_no_more_are_out_than_may_be():
    worker, tally = Worker("w", {}), Tally()
    found = await encoding(worker, encode_concurrent_inputs=4).compute("r", work(*range(30)), CONTEXT, tally)
    assert [each.values for each in found] == [[float(n)] for n in range(30)]
    assert worker.most <= 4
    assert tally.worker_urls == ["w"]


async def test_an_input_is_tried_elsewhere_and_the_refusal_has_the_word_that_clients_know():
    retried = []
    bad, good = Worker("bad", {1: lost()}), Worker("good", {})
    made = encoding(bad, good, retried=retried)
    found = await made.compute("r", work(1, 1, 1), CONTEXT, Tally())
    assert {each.worker_url for each in found} == {"good"}
    assert set(retried) == {"r"}
    with pytest.raises(EngineError) as failure:
        await encoding(Worker("w", {1: lost()})).compute("r", work(1), CONTEXT, Tally())
    assert failure.value.code == "start_embedding_failed"


async def test_the_first_failure_ends_the_others():
    worker = Worker("w", {1: EngineError("no", engine_code=3), 2: None})
    with pytest.raises(EngineError, match="no"):
        await encoding(worker).compute("r", work(2, 1, 2), CONTEXT, Tally())
    assert len(worker.aborted) == 2
    assert not worker.waiting


async def test_numbers_that_are_none_are_a_fault_of_the_engine():
    with pytest.raises(UnusableScores, match="not finite"):
        await encoding(Worker("w", {1: [float("nan"), 1.0]})).compute("r", work(1), CONTEXT, Tally())


async def test_a_deadline_aborts_what_is_out():
    worker = Worker("w", {1: None})
    made = encoding(worker)
    with pytest.raises(DeadlineExceeded, match=r"more than 0\.001 s; options\.deadline_ms"):
        async with made.within(common_pb2.EncodeOptions(deadline_ms=1)):
            await made.compute("r", work(1), CONTEXT, Tally())
    assert worker.aborted == [1]


async def test_inputs_that_have_no_place_yet_take_no_task():
    running = asyncio.create_task(
        encoding(Worker("w", dict.fromkeys(range(100))), encode_concurrent_inputs=4).compute(
            "r", work(*range(100)), CONTEXT, Tally()
        )
    )
    others = len(asyncio.all_tasks()) - 1
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - others - 1 == 4
    running.cancel()
    await asyncio.wait([running])
