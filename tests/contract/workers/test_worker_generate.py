"""Worker.generate: whatever the protocol, a listener hears the same of the same sequence."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from smg.errors import INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, EngineError, InvalidRequest
from smg_proto.engine.v1 import work_pb2
from tests.contract.workers.collecting import Collector, generate, generate_request
from tests.contract.workers.engine_script import (
    BUSY,
    FAIL_AFTER,
    FAILS_LATE,
    LATE_FINISH,
    NORMAL,
    REFUSED,
    STOP_ID,
    STOPS,
    logprob,
    script,
)
from tests.contract.workers.running import NO_ASKED_IDS, QUICK, watched


@pytest.mark.parametrize("behaviour", [NORMAL, STOPS, LATE_FINISH])
async def test_streamed_and_whole_answers_have_the_same_ids(worker, behaviour):
    prompt = [behaviour, 20, 30]
    streamed = await generate(worker, prompt, stream=True)
    whole = await generate(worker, prompt, stream=False)
    assert streamed.ids == whole.ids == script(prompt, 6).ids


async def test_a_whole_answer_comes_in_one_step_with_its_finish(worker):
    whole = await generate(worker, [NORMAL, 5], stream=False)
    assert len(whole.steps) == 1
    assert whole.finished is not None


async def test_no_token_comes_twice_and_nothing_comes_after_the_end(worker):
    streamed = await generate(worker, [NORMAL, 9, 9], max_new=40)
    again = await generate(worker, [NORMAL, 9, 9], max_new=40)
    assert streamed.ids == script([NORMAL, 9, 9], 40).ids
    assert again.ids == streamed.ids
    assert streamed.calls_after_end == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_started_comes_once_and_first_with_the_counts(worker, stream):
    answer = await generate(worker, [NORMAL, 2, 3, 4, 5], stream=stream)
    (started,) = answer.started
    assert (started.prompt_tokens, started.cached_tokens) == (5, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_reaches_its_limit_ends_with_length(worker, stream):
    answer = await generate(worker, [NORMAL, 7], max_new=3, stream=stream)
    assert answer.finished.reason == work_pb2.FINISH_REASON_LENGTH
    assert not answer.finished.HasField("matched_token_id")
    assert (answer.finished.prompt_tokens, answer.finished.completion_tokens) == (2, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_token_is_named_and_is_the_last_id(worker, stream):
    answer = await generate(worker, [STOPS, 7], stream=stream)
    assert answer.finished.reason == work_pb2.FINISH_REASON_STOP
    assert answer.finished.matched_token_id == STOP_ID == answer.ids[-1]


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_to_generate_ends_with_length_and_no_ids(worker, stream):
    answer = await generate(worker, [NORMAL, 7], max_new=0, stream=stream)
    assert answer.ids == []
    assert answer.finished.reason == work_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize("stream", [True, False])
async def test_logprobs_come_with_their_tokens(worker, stream):
    asked = [] if worker.protocol in NO_ASKED_IDS else [11, 12]
    options = work_pb2.LogprobsOptions(output=True, top_k=2, token_ids=asked)
    answer = await generate(worker, [NORMAL, 8], stream=stream, logprobs=options)
    assert len(answer.logprobs) == len(answer.ids)
    for token, row in zip(answer.ids, answer.logprobs, strict=True):
        assert row.logprob == logprob(token)
        assert list(row.top_token) == [token, token + 1]
        assert list(row.top_logprob) == [logprob(token), logprob(token) - 1]
        assert list(row.asked_logprob) == [logprob(token) for token in asked]


async def test_ids_that_cannot_be_asked_for_are_refused(worker):
    if worker.protocol not in NO_ASKED_IDS:
        pytest.skip("this protocol can ask for them")
    request = generate_request([NORMAL, 8], logprobs={"output": True, "token_ids": [11]})
    with pytest.raises(InvalidRequest, match="no field for them"):
        worker.generate(request, Collector())
    assert worker.inflight_requests == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_no_logprobs_come_unasked(worker, stream):
    answer = await generate(worker, [NORMAL, 8], stream=stream)
    assert answer.logprobs == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("start", [0, 1, 3])
async def test_prompt_logprobs_begin_where_they_were_asked_to(worker, stream, start):
    prompt = [NORMAL, 21, 22, 23, 24]
    options = work_pb2.LogprobsOptions(prompt_start=start)
    answer = await generate(worker, prompt, stream=stream, logprobs=options)
    rows = answer.started[0].prompt_logprobs
    assert [row.logprob if row.HasField("logprob") else None for row in rows] == [
        None if index == 0 else logprob(token) for index, token in enumerate(prompt) if index >= start
    ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("behaviour", "code", "can_retry"),
    [
        (REFUSED, INVALID_ARGUMENT, False),  # the client's fault stays its fault elsewhere
        (BUSY, RESOURCE_EXHAUSTED, True),  # another engine may have room
    ],
)
async def test_a_refusal_is_the_only_thing_the_listener_hears(worker, stream, behaviour, code, can_retry):
    answer = await generate(worker, [behaviour, 1], stream=stream)
    assert (answer.started, answer.steps) == ([], [])
    assert isinstance(answer.error, EngineError)
    assert (answer.error.engine_code, answer.error.can_retry) == (code, can_retry)
    assert answer.error.message == script([behaviour, 1], 6).failure[1]


async def test_a_failure_in_mid_stream_comes_after_the_tokens(worker):
    answer = await generate(worker, [FAILS_LATE, 1])
    assert answer.ids == script([FAILS_LATE, 1], 6).ids
    assert len(answer.ids) == FAIL_AFTER
    assert answer.error.engine_code == INTERNAL
    assert answer.finished is None


async def test_200_sequences_at_once_get_their_own_tokens(worker):
    prompts = [[NORMAL, index, index * 3] for index in range(200)]
    answers = [Collector() for _ in prompts]
    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        worker.generate(generate_request(prompt, max_new=30, stream=index % 4 != 0), answer)
    assert worker.inflight_requests == 200
    await asyncio.gather(*(answer.done for answer in answers))
    assert [answer.ids for answer in answers] == [script(prompt, 30).ids for prompt in prompts]
    assert all(len(answer.started) == 1 and answer.calls_after_end == 0 for answer in answers)
    assert worker.inflight_requests == 0


async def test_a_prompt_of_300000_ids_arrives_whole(worker, double):
    prompt = [NORMAL, *range(300_000)]
    await generate(worker, prompt)
    request = double.requests[-1]
    received = (
        request.tokenized.input_ids
        if hasattr(request, "tokenized")
        else memoryview(request.prompt_ids).cast("I")
    )
    assert list(received) == prompt


async def test_a_thousand_sequences_leave_nothing_behind(double):
    # No health checks meanwhile: they are calls as well.
    async with watched(double.url, dataclasses.replace(QUICK, health_interval_s=60)) as watch:
        worker = watch.worker
        await generate(worker, [NORMAL, 1])
        await double.changes.until(lambda: not double.running)
        for index in range(1000):
            await generate(worker, [NORMAL, index], max_new=1, request_id="one and the same")
        await double.changes.until(lambda: not double.running)
        assert worker.inflight_requests == 0
        assert [task for task in asyncio.all_tasks() if "sglang/jobs" in str(task)] == []
        if worker.protocol == "sglang_grpc":
            assert worker._names._used == []
            assert worker._running == {}
            # The answer to one more call comes after the ends of all before it.
            await worker.flush_cache()
            assert worker._client.connection._streams == {}
