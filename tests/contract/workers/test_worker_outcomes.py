"""Worker.on_outcome, on every protocol: how requests end is told once, in time for whoever tries again."""

from __future__ import annotations

import asyncio

import pytest

from smg.errors import EngineError
from smg_proto.engine.v1 import work_pb2
from tests.contract.workers.collecting import Collector, ResultCollector, generate, generate_request
from tests.contract.workers.engine_script import BUSY, FAILS_LATE, HANGS, NORMAL, REFUSED


@pytest.fixture
def outcomes(worker):
    heard = []
    worker.on_outcome = heard.append
    return heard


async def test_good_ends_are_told(worker, outcomes):
    for stream in (True, False):
        await generate(worker, [NORMAL, 1], stream=stream)
    result = ResultCollector()
    worker.embed(work_pb2.Embed(input_ids=b"\1\0\0\0"), result)
    await result.done
    assert outcomes == [None] * 3


@pytest.mark.parametrize("prompt", [REFUSED, BUSY, FAILS_LATE])
async def test_failures_are_told_with_their_code_before_the_listener_hears(worker, outcomes, prompt):
    heard_then = []

    class Listening(Collector):
        def on_failed(self, error):
            heard_then.extend(outcomes)
            super().on_failed(error)

    answer = Listening()
    worker.generate(generate_request([prompt, 1]), answer)
    await answer.done
    assert [error.engine_code for error in outcomes] == [answer.error.engine_code]
    assert heard_then == outcomes


async def test_an_abort_is_no_outcome(watch, worker, outcomes):
    answer = Collector()
    sequence = worker.generate(generate_request([HANGS, 1]), answer)
    await answer.first_step.wait()
    worker.abort(sequence)
    await generate(worker, [NORMAL, 1])
    assert outcomes == [None]


async def test_a_loss_is_told_for_what_it_took(double, watch, worker, outcomes):
    answers = [Collector() for _ in range(3)]
    for answer in answers:
        worker.generate(generate_request([HANGS, 1]), answer)
    await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    await double.kill()
    await asyncio.gather(*(answer.done for answer in answers))
    assert outcomes
    assert all(isinstance(error, EngineError) for error in outcomes)
    assert len(outcomes) <= len(answers)
