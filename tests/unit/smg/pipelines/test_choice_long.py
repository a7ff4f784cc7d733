"""Choices whose writing takes long: the loop goes round meanwhile, and the answer is what it would be otherwise."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai.chat_sinks import JsonChatSink
from gateway.openai.completion_sinks import JsonCompletionSink
from smg.errors import UNAVAILABLE, EngineError, InternalError
from smg.pipelines import choice as choice_module
from smg.pipelines import echo as echo_module
from smg.pipelines import logprobs as logprobs_module
from smg.pipelines.answer import Answer
from smg.pipelines.choice import Choice, TextOptions
from smg.pipelines.echo import SharedEcho, prompt_echo
from smg.prompt.packed import unpack_ids
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.pipelines.remembering import RememberingWorker

OPTIONS = TextOptions(logprobs=True, end_logprobs=True)


class Page:
    """A reply that remembers."""

    def __init__(self):
        self.data = b""
        self.status = 0

    def start(self, status, headers):
        self.status = status

    def end(self, data=b""):
        self.data += data


class Breaking(JsonCompletionSink):
    """Fails when it is to write the thousandth token."""

    def _form(self, rows):
        if rows.entries[-1].offset > 1000:
            raise ValueError("cannot be written")
        return super()._form(rows)


def ids_of(count, start=300):
    return [start + number % 1500 for number in range(count)]


def rows_of(ids, top_k=0):
    return [
        work_pb2.TokenLogprobs(
            logprob=-float(number % 7),
            top_token=[token + other for other in range(top_k)],
            top_logprob=[-float(other) for other in range(top_k)],
        )
        for number, token in enumerate(ids)
    ]


def end(reason=work_pb2.FINISH_REASON_LENGTH):
    return work_pb2.Finished(reason=reason, prompt_tokens=5)


class Asked:
    """An answer with `count` choices, with an echoed prompt or without one."""

    def __init__(self, builder, prompt=(), *, count=1, sink=JsonCompletionSink, options=OPTIONS):
        self.page, self.worker = Page(), RememberingWorker()
        self.sink = sink(self.page, lambda _: [], logprobs=True)
        self.answer = Answer("a", 1, "m", self.sink)
        echo = None
        if prompt:
            prompt = builder.ids(prompt)
            echo = SharedEcho(
                builder.tokenizer,
                prompt_echo(builder.tokenizer, prompt, is_text=False, echo=True, logprobs=True),
            )
        self.choices = [
            Choice(index, self.answer, builder.tokenizer, options, prompt=echo) for index in range(count)
        ]
        self.answer.start(self.worker, self.choices, len(self.choices))

    async def body(self):
        await self.answer.done
        await self.sink.written()
        return json.loads(self.page.data)

    async def rounds(self):
        """How often the loop came round before the answer was complete."""
        count = 0
        while not self.answer.done.done():
            await asyncio.sleep(0)
            count += 1
        return count


def prompt_started(prompt, top_k=0):
    return work_pb2.Started(prompt_tokens=len(prompt), prompt_logprobs=rows_of(prompt, top_k))


async def test_the_loop_goes_round_while_a_long_echo_is_written(builder):
    prompt = ids_of(8000)
    asked = Asked(builder, prompt)
    [choice] = asked.choices
    choice.on_started(prompt_started(prompt, top_k=5))
    choice.on_step((400,), rows_of((400,)), end())
    assert await asked.rounds() >= 50
    [written] = (await asked.body())["choices"]
    assert [len(values) for values in written["logprobs"].values()] == [8001] * 4


async def test_the_loop_goes_round_while_a_long_whole_chat_answer_is_written(builder):
    ids = ids_of(3000)
    asked = Asked(builder, sink=JsonChatSink, options=TextOptions(logprobs=True))
    asked.choices[0].on_step(ids, rows_of(ids, top_k=20), end())
    assert await asked.rounds() >= 50
    [written] = (await asked.body())["choices"]
    assert len(written["logprobs"]["content"]) == 3000


async def test_a_short_echo_is_written_before_the_step_returns(builder):
    prompt = ids_of(20)
    asked = Asked(builder, prompt)
    asked.choices[0].on_started(prompt_started(prompt))
    asked.choices[0].on_step((400,), rows_of((400,)), end())
    assert asked.page.data


SIZES = st.sampled_from([1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 100])


@given(SIZES, SIZES, st.integers(1, 3), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_lengths_and_cuts_do_not_change_the_answer(builder, prompt_tokens, output_tokens, count, sizes):
    prompt, output = ids_of(prompt_tokens), ids_of(output_tokens, start=301)

    async def answered(cuts):
        asked = Asked(builder, prompt, count=count)
        # The one that tells of the prompt comes last. The number of a row is its place in its step.
        for choice in reversed(asked.choices):
            choice.on_started(prompt_started(prompt, top_k=2) if choice.index == 0 else work_pb2.Started())
            at = 0
            while at < len(output):
                size = cuts[at % len(cuts)]
                part = output[at : at + size]
                is_last = at + size >= len(output)
                choice.on_step(part, rows_of(part, top_k=2), end() if is_last else None)
                at += size
        return await asked.body()

    def run(cuts, portion):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(echo_module, "PART_TOKENS", portion)
            patch.setattr(choice_module, "PORTION_TOKENS", portion)
            patch.setattr(logprobs_module, "ENTRY_COST", 1 if portion > 1000 else 900)
            return asyncio.run(answered(cuts))

    inline, sliced = run(sizes, 1 << 20), run(sizes, 16)
    assert sliced == inline
    assert inline["usage"]["completion_tokens"] == count * output_tokens


async def test_choices_wait_for_the_log_probabilities_that_the_first_one_brings(builder):
    prompt = ids_of(40)
    asked = Asked(builder, prompt, count=2)
    first, second = asked.choices
    second.on_started(work_pb2.Started(prompt_tokens=40))
    second.on_step((400,), rows_of((400,)), end())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.answer.is_open
    first.on_started(prompt_started(prompt))
    first.on_step((401,), rows_of((401,)), end())
    one, other = (await asked.body())["choices"]
    assert one["logprobs"]["token_logprobs"] == other["logprobs"]["token_logprobs"]
    assert one["logprobs"]["tokens"][:-1] == other["logprobs"]["tokens"][:-1]


async def test_a_step_that_comes_meanwhile_stands_behind_the_echo(builder):
    prompt = ids_of(2000)
    asked = Asked(builder, prompt)
    [choice] = asked.choices
    choice.on_started(prompt_started(prompt, top_k=5))
    for number in range(30):
        choice.on_step((400 + number,), rows_of((400,)), None)
    choice.on_step((), (), end())
    [written] = (await asked.body())["choices"]
    tokenizer = builder.tokenizer
    assert written["text"].endswith(tokenizer.decode([400 + number for number in range(30)]))
    assert written["text"] == tokenizer.decode([*prompt, *range(400, 430)])


async def test_a_stop_string_in_a_long_last_step_ends_the_choice_as_its_engine_did(builder, monkeypatch):
    monkeypatch.setattr(choice_module, "PORTION_TOKENS", 16)
    ids = [*memoryview(builder.tokenizer.encode("one two " * 20 + "STOP" + " three" * 40)).cast("I")]
    asked = Asked(builder, options=OPTIONS._replace(stop=("STOP",)))
    asked.choices[0].on_step(ids, rows_of(ids), end(work_pb2.FINISH_REASON_STOP))
    answer = await asked.body()
    [written] = answer["choices"]
    assert written["text"] == "one two " * 20
    assert (written["finish_reason"], written["matched_stop"]) == ("stop", "STOP")
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (5, len(ids))
    assert asked.worker.aborted == []


def moved(asked, choices):
    """What an engine call does when a worker is lost: the requests with which another one goes on."""
    asked.choices[0].on_failed(EngineError("lost", engine_code=UNAVAILABLE, can_retry=True))
    assert asked.answer.done.exception() is not None
    requests = [work_pb2.Generate() for _ in choices]
    for choice, request in zip(choices, requests, strict=True):
        choice.resume(request)
    asked.answer.start(asked.worker, choices, sum(not choice.has_ended for choice in asked.choices))
    return requests


async def test_what_is_not_written_yet_when_a_worker_is_lost_is_written_all_the_same(builder):
    prompt, bodies = ids_of(8000), []
    for is_lost in (False, True):
        asked = Asked(builder, prompt)
        [choice] = asked.choices
        choice.on_started(prompt_started(prompt, top_k=5))
        choice.on_step((400,), rows_of((400,)), None)
        if is_lost:
            [request] = moved(asked, [choice])
            assert unpack_ids(request.output_ids) == [400]
        choice.on_step((401,), rows_of((401,)), end())
        bodies.append((await asked.body())["choices"])
    assert bodies[0] == bodies[1]


async def test_a_choice_that_is_complete_and_not_written_yet_does_not_run_again(builder):
    """Its engine has told its end; that another one is lost does not concern it."""
    asked = Asked(builder, count=2)
    running, complete = asked.choices
    ids = ids_of(9000)
    complete.on_step(ids, rows_of(ids), end())
    assert complete.is_complete
    assert not complete.has_ended
    moved(asked, [running])
    running.on_step((401,), rows_of((401,)), end())
    choices = (await asked.body())["choices"]
    assert len(choices[1]["logprobs"]["tokens"]) == 9000
    assert len(choices[0]["logprobs"]["tokens"]) == 1


async def test_an_answer_whose_last_end_is_written_between_two_workers_is_complete(builder):
    asked = Asked(builder, options=OPTIONS._replace(stop=("STOP",)))
    [choice] = asked.choices
    ids = unpack_ids(builder.tokenizer.encode("word " * 3000 + "STOP and more"))
    choice.on_step(ids, rows_of(ids), None)
    choice.on_failed(EngineError("lost", engine_code=UNAVAILABLE, can_retry=True))
    assert asked.answer.done.exception() is not None
    while not choice.has_ended:  # noqa: ASYNC110 - a state that has no event
        await asyncio.sleep(0)
    asked.answer.start(asked.worker, [], 0)
    assert (await asked.body())["choices"][0]["finish_reason"] == "stop"


async def test_a_client_that_leaves_ends_the_writing(builder):
    prompt = ids_of(8000)
    asked = Asked(builder, prompt)
    [choice] = asked.choices
    choice.sequence = 7
    choice.on_started(prompt_started(prompt, top_k=5))
    choice.on_step((400,), rows_of((400,)), None)
    asked.answer.abort()
    choice.is_abandoned = True
    turns = asked.answer.turns.turns
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked.answer.turns.turns <= turns + 1
    assert asked.worker.aborted == [7]
    assert not asked.page.data


async def test_a_failure_of_the_engine_while_the_echo_is_written_ends_the_answer(builder):
    prompt = ids_of(8000)
    asked = Asked(builder, prompt)
    [choice] = asked.choices
    choice.on_started(prompt_started(prompt, top_k=5))
    choice.on_step((400,), rows_of((400,)), None)
    choice.on_failed(InternalError("lost"))
    with pytest.raises(InternalError, match="lost"):
        await asked.answer.done


async def test_what_breaks_the_writing_is_an_error_of_this_request_alone(builder):
    prompt = ids_of(2000)
    broken, sound = Asked(builder, prompt, sink=Breaking), Asked(builder, prompt)
    sound.answer.turns = broken.answer.turns
    for asked in (broken, sound):
        asked.choices[0].on_started(prompt_started(prompt))
        asked.choices[0].on_step((400,), rows_of((400,)), end())
    with pytest.raises(InternalError, match="the answer could not be written"):
        await broken.answer.done
    assert broken.worker.aborted == [0]
    assert len((await sound.body())["choices"][0]["logprobs"]["tokens"]) == 2001
