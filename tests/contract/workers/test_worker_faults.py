"""Worker: what breaks is told once to those it concerns, and to nobody else; what heals is used again."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from smg.errors import UNAVAILABLE, EngineError, InternalError, WorkerUnavailable
from smg_proto.engine.v1 import work_pb2
from tests.contract.workers.collecting import Collector, ResultCollector, generate, generate_request
from tests.contract.workers.engine_script import HANGS, NORMAL, Changes, script
from tests.contract.workers.running import QUICK, watched


async def hanging(worker, count: int = 1) -> tuple[list[Collector], list[int]]:
    """Sequences that have had their first tokens and will get no more."""
    answers = [Collector() for _ in range(count)]
    sequences = [worker.generate(generate_request([HANGS, 3]), answer) for answer in answers]
    await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    return answers, sequences


async def test_an_aborted_sequence_is_not_heard_of_again_and_the_engine_stops_it(worker, double):
    (answer,), (sequence,) = await hanging(worker)
    worker.abort(sequence)
    assert worker.inflight_requests == 0
    await double.changes.until(lambda: double.aborts and not double.running)
    await generate(worker, [NORMAL, 1])
    assert not answer.done.done()


async def test_a_sequence_aborted_before_its_first_token_is_never_heard_of(worker, double):
    answer = Collector()
    worker.abort(worker.generate(generate_request([HANGS, 3]), answer))
    await double.changes.until(lambda: double.aborts and not double.running)
    await generate(worker, [NORMAL, 1])
    assert (answer.started, answer.steps, answer.error) == ([], [], None)


async def test_abort_of_an_unknown_or_ended_sequence_is_ignored(worker):
    answer = Collector()
    sequence = worker.generate(generate_request([NORMAL, 1]), answer)
    await answer.done
    worker.abort(sequence)
    worker.abort(10_000)
    assert (await generate(worker, [NORMAL, 1])).ids == answer.ids


async def test_a_killed_engine_fails_every_sequence_and_a_restart_heals(watch, double):
    worker = watch.worker
    before = worker.description.instance_id
    answers, _ = await hanging(worker, 20)
    await double.kill()
    await asyncio.gather(*(answer.done for answer in answers))
    for answer in answers:
        assert isinstance(answer.error, EngineError)
        assert (answer.error.engine_code, answer.error.can_retry) == (UNAVAILABLE, True)
        assert answer.calls_after_end == 0
    await watch.until(lambda worker: not worker.is_connected)
    assert worker.reason
    assert worker.inflight_requests == 0
    with pytest.raises(WorkerUnavailable):
        worker.generate(generate_request([NORMAL, 1]), Collector())
    await double.start()
    await watch.until(lambda worker: worker.is_ready)
    assert worker.description.instance_id != before
    assert (await generate(worker, [NORMAL, 1])).ids == script([NORMAL, 1], 6).ids


async def test_a_listener_may_abort_others_while_it_is_told_of_the_loss(watch, double):
    answers, sequences = await hanging(watch.worker, 8)
    told: list[int] = []
    changes = Changes()

    def abort_the_rest(index):
        def on_failed(_error):
            told.append(index)
            changes.notify()
            for sequence in sequences:
                watch.worker.abort(sequence)

        return on_failed

    for index, answer in enumerate(answers):
        answer.on_failed = abort_the_rest(index)
    await double.kill()
    await changes.until(lambda: told)
    await watch.until(lambda worker: not worker.is_connected and not worker.inflight_requests)
    assert len(told) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_listener_that_raises_harms_nobody_else(worker, stream):
    class Broken(Collector):
        def on_step(self, token_ids, logprobs, finished):
            raise ZeroDivisionError("broken listener")

    broken, others = Broken(), [Collector() for _ in range(10)]
    worker.generate(generate_request([NORMAL, 1], stream=stream), broken)
    for answer in others:
        worker.generate(generate_request([NORMAL, 2], stream=stream), answer)
    await asyncio.gather(broken.done, *(answer.done for answer in others))
    assert all(answer.ids == script([NORMAL, 2], 6).ids for answer in others)
    assert isinstance(broken.error, InternalError)
    assert worker.inflight_requests == 0


async def test_a_listener_that_raises_has_its_sequence_stopped(worker, double):
    class Broken(Collector):
        def on_step(self, token_ids, logprobs, finished):
            raise ZeroDivisionError("broken listener")

    broken = Broken()
    worker.generate(generate_request([HANGS, 1]), broken)
    await broken.done
    await double.changes.until(lambda: double.aborts and not double.running)


async def test_a_listener_that_raises_even_when_told_so_harms_nobody(worker):
    class Hopeless(Collector):
        def on_step(self, token_ids, logprobs, finished):
            raise ZeroDivisionError("broken listener")

        def on_failed(self, error):
            self._end()
            raise ZeroDivisionError("broken again")

    hopeless = Hopeless()
    worker.generate(generate_request([NORMAL, 1]), hopeless)
    await hopeless.done
    assert (await generate(worker, [NORMAL, 2])).ids == script([NORMAL, 2], 6).ids


async def test_an_unhealthy_engine_takes_no_new_work_until_it_is_well(watch, double):
    await double.set_health(serving=False)
    await watch.until(lambda worker: not worker.is_ready)
    assert watch.worker.is_connected
    assert "health" in watch.worker.reason
    await double.set_health(serving=True)
    await watch.until(lambda worker: worker.is_ready)
    assert watch.worker.reason == ""


async def test_a_wedged_engine_loses_its_sequences_and_says_why(double):
    # Health checks of SGLang compute, so a wedged one fails them as well: they must not come first here.
    options = dataclasses.replace(QUICK, wedge_s=0.05, health_interval_s=60)
    async with watched(double.url, options) as watch:
        double.is_wedged = True
        answer = Collector()
        watch.worker.generate(generate_request([NORMAL, 1]), answer)
        await answer.done
        assert (answer.error.engine_code, answer.error.can_retry) == (UNAVAILABLE, True)
        assert not watch.worker.is_ready
        assert watch.worker.reason == "no step for 0.05 s while sequences ran"


async def test_close_fails_what_runs_and_leaves_no_task(double):
    before = asyncio.all_tasks()
    answer, result = Collector(), ResultCollector()
    async with watched(double.url) as watch:
        watch.worker.generate(generate_request([HANGS, 1]), answer)
        await answer.first_step.wait()
        watch.worker.embed(work_pb2.Embed(input_ids=b"\4\0\0\0"), result)
    assert answer.error.engine_code == UNAVAILABLE
    assert result.done.done()
    result.done.exception()
    await double.changes.until(lambda: not double.running)
    # What is left are the double's own tasks.
    left = [task for task in asyncio.all_tasks() - before if "smg" in str(task.get_coro())]
    assert left == []
