"""Worker.generate_choices: the choices of one prompt are sequences like any others, however they are asked for."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from smg.errors import INTERNAL, UNAVAILABLE, InternalError, InvalidRequest, WorkerUnavailable
from smg_proto.engine.v1 import work_pb2
from tests.contract.workers.collecting import Collector, choices, generate, generate_request
from tests.contract.workers.engine_script import (
    FAILS_LATE,
    FIRST_ENDS,
    HANGS,
    NORMAL,
    REFUSED,
    STOP_ID,
    STOPS,
    logprob,
    script,
)

COUNT = 3
SGLANG = pytest.mark.parametrize("double", ["sglang_grpc"], indirect=True)


async def ended(answers) -> None:
    await asyncio.gather(*(answer.done for answer in answers))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("behaviour", [NORMAL, STOPS])
async def test_every_choice_gets_its_own_tokens_and_its_own_end(worker, stream, behaviour):
    prompt = [behaviour, 20, 30]
    answers, sequences = choices(worker, prompt, COUNT, stream=stream)
    assert len(set(sequences)) == COUNT
    assert worker.inflight_requests == COUNT
    await ended(answers)
    for index, answer in enumerate(answers):
        assert answer.ids == script(prompt, 6, index).ids
        assert answer.calls_after_end == 0
        assert answer.finished.completion_tokens == 6
        assert answer.finished.HasField("matched_token_id") == (answer.ids[-1] == STOP_ID)
        (started,) = answer.started
        assert (started.prompt_tokens, started.cached_tokens) == (3, 2)
        assert started.sequence == answer.finished.sequence == sequences[index]
    assert worker.inflight_requests == 0


async def test_a_single_choice_is_a_sequence(worker):
    (answer,), _ = choices(worker, [NORMAL, 4], 1)
    await answer.done
    assert answer.ids == (await generate(worker, [NORMAL, 4])).ids


@pytest.mark.parametrize("stream", [True, False])
async def test_every_choice_has_the_logprobs_of_its_own_tokens_and_of_the_prompt(worker, stream):
    prompt = [NORMAL, 21, 22]
    options = work_pb2.LogprobsOptions(output=True, top_k=2, prompt_start=1)
    answers, _ = choices(worker, prompt, COUNT, stream=stream, logprobs=options)
    await ended(answers)
    for answer in answers:
        assert [row.logprob for row in answer.logprobs] == [logprob(token) for token in answer.ids]
        assert [row.logprob for row in answer.started[0].prompt_logprobs] == [logprob(21), logprob(22)]


@pytest.mark.parametrize("stream", [True, False])
async def test_choices_without_tokens_end_with_length(worker, stream):
    answers, _ = choices(worker, [NORMAL, 7], COUNT, max_new=0, stream=stream)
    await ended(answers)
    for answer in answers:
        assert answer.ids == []
        assert answer.finished.reason == work_pb2.FINISH_REASON_LENGTH


async def test_an_aborted_choice_is_not_heard_of_again_and_the_others_go_on(worker, double):
    answers, sequences = choices(worker, [NORMAL, 5], COUNT, max_new=40)
    worker.abort(sequences[1])
    assert worker.inflight_requests == COUNT - 1
    await ended([answers[0], answers[2]])
    await double.changes.until(lambda: not double.running)
    await generate(worker, [NORMAL, 1])
    assert (answers[1].started, answers[1].steps, answers[1].error) == ([], [], None)
    for index in (0, 2):
        assert answers[index].ids == script([NORMAL, 5], 40, index).ids


async def test_the_engine_stops_when_the_last_choice_is_aborted(worker, double):
    answers, sequences = choices(worker, [HANGS, 5], COUNT)
    await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    for sequence in sequences:
        worker.abort(sequence)
    assert worker.inflight_requests == 0
    await double.changes.until(lambda: double.aborts and not double.running)
    assert not any(answer.done.done() for answer in answers)


async def test_the_engine_stops_when_one_choice_has_ended_and_the_rest_is_aborted(worker, double):
    answers, sequences = choices(worker, [FIRST_ENDS, 5], 2)
    await answers[0].done
    await answers[1].first_step.wait()
    assert worker.inflight_requests == 1
    worker.abort(sequences[1])
    await double.changes.until(lambda: double.aborts and not double.running)
    assert worker.inflight_requests == 0


async def test_the_engine_stops_when_the_rest_was_aborted_before_one_choice_ended(worker, double):
    answers, sequences = choices(worker, [FIRST_ENDS, 5], 2)
    worker.abort(sequences[1])
    await answers[0].done
    await double.changes.until(lambda: double.aborts and not double.running)
    assert worker.inflight_requests == 0


async def test_a_refusal_reaches_every_choice_once(worker):
    answers, _ = choices(worker, [REFUSED, 1], COUNT)
    await ended(answers)
    for answer in answers:
        assert (answer.started, answer.steps, answer.calls_after_end) == ([], [], 0)
        assert answer.error.message == script([REFUSED, 1], 6).failure[1]
    assert worker.inflight_requests == 0


async def test_a_late_failure_reaches_every_choice_after_its_tokens(worker):
    answers, _ = choices(worker, [FAILS_LATE, 1], COUNT)
    await ended(answers)
    for index, answer in enumerate(answers):
        assert answer.ids == script([FAILS_LATE, 1], 6, index).ids
        assert (answer.error.engine_code, answer.calls_after_end) == (INTERNAL, 0)


async def test_a_choice_that_is_told_of_the_failure_may_abort_the_others(worker):
    answers, sequences = choices(worker, [REFUSED, 1], COUNT)
    told = []

    def abort_the_rest(error):
        told.append(error)
        for sequence in sequences:
            worker.abort(sequence)
        answers[0]._end()

    for answer in answers:
        answer.on_failed = abort_the_rest
    await answers[0].done
    await generate(worker, [NORMAL, 1])
    assert len(told) == 1
    assert worker.inflight_requests == 0


async def test_a_killed_engine_fails_every_choice(worker, double):
    answers, _ = choices(worker, [HANGS, 1], COUNT)
    await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    await double.kill()
    await ended(answers)
    assert {answer.error.engine_code for answer in answers} == {UNAVAILABLE}
    assert all(answer.calls_after_end == 0 for answer in answers)
    assert worker.inflight_requests == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_listener_that_raises_loses_its_own_choice_alone(worker, stream):
    class Broken(Collector):
        def on_step(self, token_ids, logprobs, finished):
            raise ZeroDivisionError("broken listener")

    listeners = [Collector(), Broken(), Collector()]
    requests = [generate_request([NORMAL, 2], stream=stream) for _ in listeners]
    for index, request in enumerate(requests):
        request.sampling.choice_index = index
    worker.generate_choices(requests, listeners)
    await ended(listeners)
    assert isinstance(listeners[1].error, InternalError)
    for index in (0, 2):
        assert listeners[index].ids == script([NORMAL, 2], 6, index).ids
    assert worker.inflight_requests == 0


async def test_choices_that_were_delivered_in_part_go_on_each_from_its_own_place(worker, double):
    requests = [generate_request([NORMAL, 2], output_ids=array("I", [50 + i]).tobytes()) for i in range(2)]
    answers = [Collector() for _ in requests]
    worker.generate_choices(requests, answers)
    await ended(answers)
    sent = [
        list(request.tokenized.input_ids)[2:]
        if hasattr(request, "tokenized")
        else list(array("I", request.prompt_ids + request.output_ids))[2:]
        for request in double.requests
    ]
    assert sent == [[50], [51]]
    assert all(answer.finished is not None for answer in answers)


async def test_nothing_is_submitted_when_there_is_no_connection(watch, double):
    await double.kill()
    await watch.until(lambda worker: not worker.is_connected)
    answers = [Collector(), Collector()]
    with pytest.raises(WorkerUnavailable):
        watch.worker.generate_choices([generate_request([NORMAL, 1]) for _ in answers], answers)
    assert watch.worker.inflight_requests == 0
    assert [answer.error for answer in answers] == [None, None]


@SGLANG
async def test_sglang_computes_the_prompt_of_all_choices_once(worker, double):
    answers, _ = choices(worker, [NORMAL, 3], COUNT, request_id="chatcmpl-1")
    await ended(answers)
    (request,) = double.requests
    assert (request.sampling_params.n, request.request_id) == (COUNT, "chatcmpl-1")
    await double.changes.until(lambda: not double.running)
    assert (double.aborts, double.cancelled) == ([], [])
    assert worker._names._used == []


@SGLANG
async def test_what_sglang_cannot_say_is_refused_before_anything_is_sent(worker, double):
    requests = [generate_request([NORMAL, 1], constraint={"lark": "start: x"}) for _ in range(2)]
    answers = [Collector(), Collector()]
    with pytest.raises(InvalidRequest, match="lark"):
        worker.generate_choices(requests, answers)
    assert (worker.inflight_requests, worker._names._used, double.requests) == (0, [], [])


@SGLANG
@pytest.mark.parametrize(("parser", "is_refused"), [(None, True), ("", True), ("qwen3", False)], ids=str)
async def test_sglang_without_a_reasoning_parser_gets_no_form_that_begins_late(
    watch, double, parser, is_refused
):
    double.server_args = {"reasoning_parser": parser}
    await double.kill()
    await watch.until(lambda worker: not worker.is_connected)
    await double.start()
    await watch.until(lambda worker: worker.is_ready)
    late = {"regex": "a", "begins_after": "</think>"}
    answers = [Collector(), Collector()]
    requests = [generate_request([NORMAL, 1], constraint=late) for _ in answers]
    if is_refused:
        with pytest.raises(InvalidRequest, match="--reasoning-parser") as caught:
            watch.worker.generate_choices(requests, answers)
        assert caught.value.code == "constraint_not_supported"
        assert (watch.worker.inflight_requests, double.requests) == (0, [])
        requests[0].constraint.ClearField("begins_after")
    watch.worker.generate_choices(requests[:1], answers[:1])
    await ended(answers[:1])
    assert len(double.requests) == 1
