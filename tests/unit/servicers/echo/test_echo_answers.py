"""What the echo engine answers: directives through to tokens, ends, counters and log-probabilities."""

from __future__ import annotations

import json

import pytest

from servicers.echo.passage import FIXED_REPLY, PASSAGE
from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import work_pb2
from tests.unit.servicers.echo.collector import ABORT, LENGTH, STOP, bench

END = "<|im_end|>"


@pytest.fixture
async def echo(tokenizer_dir):
    async with bench(tokenizer_dir) as made:
        yield made


async def test_without_directives_the_reply_is_fixed(echo):
    assert await echo.reply("Hello") == FIXED_REPLY + END
    assert await echo.reply(ids_to_bytes(range(300, 1300))) == FIXED_REPLY + END


async def test_directives_choose_the_reply(echo):
    assert await echo.reply("[[say:Good day]]") == "Good day" + END
    assert await echo.reply("[[len:3]]") == "w0 w1 w2" + END
    assert await echo.reply("[[say:x]][[eos:0]]") == "x"
    assert await echo.reply("[[say:caf\u00e9 \U0001f600]]") == "caf\u00e9 \U0001f600" + END


async def test_a_directive_far_from_the_end_of_a_long_message_is_found(echo):
    assert await echo.reply("[[say:found]] " + "word " * 3000) == "found" + END


async def test_a_directive_of_an_earlier_message_is_not_found(echo):
    assert await echo.reply(echo.chat("[[say:old]]", "x", "new " * 1000)) == FIXED_REPLY + END


async def test_tool_turns_are_counted(echo):
    turns = ("[[tool:f:{}]][[next]][[say:done]]", "call", "<tool_response>\n4\n</tool_response>")
    assert "tool_call" in await echo.reply(echo.chat(turns[0]))
    assert await echo.reply(echo.chat(*turns)) == "done" + END


async def test_choices_differ(echo):
    assert await echo.reply("[[say:x]]", choice_index=0) == "x" + END
    assert await echo.reply("[[say:x]]", choice_index=2) == "x [2]" + END
    assert await echo.reply("Hello", choice_index=1) == FIXED_REPLY + " [1]" + END


async def test_raw_ids_are_given_as_they_are_and_checked(echo):
    tokens, _ = await echo.run_one(echo.generate("[[ids:7,8,9]][[eos:0]]"))
    assert tokens == [7, 8, 9]
    _, failed = await echo.run_one(echo.generate("[[ids:7,2000]]"))
    assert (failed.code, failed.message) == (3, "directive ids has 2000; allowed: 0 to 1999")


async def test_a_natural_end_is_a_matched_end_token(echo):
    tokens, end = await echo.run_one(echo.generate("[[say:x]]"))
    assert (end.reason, end.matched_token_id) == (STOP, tokens[-1])
    _, end = await echo.run_one(echo.generate("[[say:x]][[eos:0]]"))
    assert (end.reason, end.HasField("matched_token_id")) == (STOP, False)


@pytest.mark.parametrize(
    ("word", "reason", "text"),
    [
        ("length", LENGTH, ""),
        ("stop", STOP, ""),
        ("abort", ABORT, ""),
        ("content_filter", STOP, "content_filter"),
    ],
)
async def test_the_finish_reason_can_be_told(echo, word, reason, text):
    _, end = await echo.run_one(echo.generate(f"[[say:x]][[finish:{word}]]"))
    assert (end.reason, end.reason_text) == (reason, text)


async def test_an_error_comes_before_anything_else(echo):
    [number] = await echo.run(echo.generate("[[say:x]][[error:RESOURCE_EXHAUSTED:full]]"))
    failed = echo.sink.ends[number]
    assert (failed.code, failed.message, failed.is_retryable) == (8, "full", True)
    assert number not in echo.sink.started
    assert number not in echo.sink.tokens


@pytest.mark.parametrize("chunks", [1, 3])
async def test_an_error_after_some_chunks(echo, chunks):
    tokens, failed = await echo.run_one(echo.generate(f"[[len:9]][[errorafter:{chunks}:INVALID_ARGUMENT:x]]"))
    assert len(tokens) == chunks
    assert (failed.code, failed.is_retryable) == (3, False)


async def test_an_error_after_more_chunks_than_there_are_never_comes(echo):
    _, end = await echo.run_one(echo.generate("[[say:x]][[errorafter:99:INTERNAL]]"))
    assert end.reason == STOP


async def test_chunks_bring_several_tokens_a_step(echo):
    [number, other] = await echo.run(echo.generate("[[len:4]][[chunk:3]]"), echo.generate("[[len:4]]"))
    assert set(echo.sink.chunks[number][:-1]) == {3}
    assert set(echo.sink.chunks[other]) == {1}
    assert echo.sink.tokens[number] == echo.sink.tokens[other]


async def test_usage_counters_can_be_told(echo):
    _, end = await echo.run_one(echo.generate("[[say:x]][[cached:3]][[rtok:1]][[spec:10:6]]"))
    assert (end.cached_tokens, end.reasoning_tokens) == (3, 1)
    assert (end.draft_tokens, end.accepted_tokens) == (10, 6)
    _, end = await echo.run_one(echo.generate("[[say:x]][[rtok:999]]"))
    assert end.reasoning_tokens == end.completion_tokens


async def test_the_mirror_shows_parameters_and_constraint(echo):
    reply = await echo.reply(
        "[[mirror]]",
        temperature=0.5,
        top_k=4,
        seed=9,
        constraint=work_pb2.Constraint(json_schema='{"a": 1}', begins_after="</think>"),
    )
    assert json.loads(reply.removesuffix(END)) == {
        "temperature": 0.5,
        "top_k": 4,
        "seed": "9",
        "json_schema": '{"a": 1}',
        "begins_after": "</think>",
    }


@pytest.mark.parametrize("schema", ["{", "[1]", '"text"', ""])
async def test_a_schema_that_is_no_json_object_is_refused(echo, schema):
    message = echo.generate("Hi", constraint=work_pb2.Constraint(json_schema=schema))
    _, failed = await echo.run_one(message)
    assert failed.code == 3
    assert failed.message.startswith("constraint.json_schema is")


async def test_asked_logprobs_can_be_told_for_the_first_token(echo):
    options = work_pb2.LogprobsOptions(token_ids=[5, 6, 7])
    [number] = await echo.run(echo.generate("[[say:a b]][[lp:-1,-2]]", logprobs=options))
    first, second, *_ = echo.sink.logprobs[number]
    assert list(first.asked_logprob) == [-1, -2, -20]
    assert len(second.asked_logprob) == 3
    assert -1 not in second.asked_logprob


async def test_rows_of_asked_ids_can_be_left_out(echo):
    options = work_pb2.LogprobsOptions(token_ids=[5])
    [number] = await echo.run(echo.generate("[[say:a b]][[norows]]", logprobs=options))
    assert all(entry.HasField("logprob") and not entry.asked_logprob for entry in echo.sink.logprobs[number])


async def test_top_logprobs_alone_concern_the_prompt(echo):
    options = work_pb2.LogprobsOptions(top_k=2, prompt_start=1)
    [number] = await echo.run(echo.generate("[[say:a]]", logprobs=options))
    assert number not in echo.sink.logprobs
    assert all(len(entry.top_token) == 2 for entry in echo.sink.started[number].prompt_logprobs)


async def test_logprobs_go_on_with_output_ids(echo):
    options = work_pb2.LogprobsOptions(output=True)
    [whole] = await echo.run(echo.generate("[[len:5]]", logprobs=options))
    done = ids_to_bytes(echo.sink.tokens[whole][:4])
    [rest] = await echo.run(echo.generate("[[len:5]]", logprobs=options, output_ids=done))
    assert echo.sink.tokens[rest] == echo.sink.tokens[whole][4:]
    assert echo.sink.logprobs[rest] == echo.sink.logprobs[whole][4:]


@pytest.mark.parametrize("done", range(6))
async def test_a_reply_that_is_not_streamed_holds_the_new_tokens_only(echo, done):
    whole, _ = await echo.run_one(echo.generate("[[len:2]]"))
    rest, end = await echo.run_one(
        echo.generate("[[len:2]]", stream=False, output_ids=ids_to_bytes(whole[:done]))
    )
    assert rest == whole[done:]
    assert end.completion_tokens == len(whole)


async def test_endless_replies_are_text_as_long_as_wanted_and_start_anywhere(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True) as echo:
        replies = [await echo.reply(f"Question {n}", max_new_tokens=900) for n in range(3)]
        assert len(set(replies)) == 3
        for reply in replies:
            assert reply in PASSAGE * 10
        assert replies[0] == await echo.reply("Question 0", max_new_tokens=900)
        assert replies[0] != await echo.reply("Question 0", max_new_tokens=900, choice_index=1)
        assert await echo.reply("[[say:told]]") == "told" + END
        tokens, end = await echo.run_one(echo.generate("Question 0", max_new_tokens=900, ignore_eos=True))
        assert (len(tokens), end.reason) == (900, LENGTH)


async def test_work_beside_generate_obeys_errors_and_told_scores(echo):
    suffix = work_pb2.ScoreSuffix(ids=echo.chat("[[lp:-0.5,-3]]"), label_ids=[5, 6])
    broken = work_pb2.ScoreSuffix(ids=echo.chat("[[error:UNAVAILABLE:x]]"), label_ids=[5])
    silent = work_pb2.ScoreSuffix(ids=echo.chat("[[norows]]"), label_ids=[5])
    numbers = await echo.run(
        work_pb2.Score(suffixes=[suffix, silent]),
        work_pb2.Score(suffixes=[broken]),
        work_pb2.Embed(input_ids=echo.chat("[[error:INTERNAL:x]]")),
        work_pb2.Classify(input_ids=echo.chat("[[len:x]]")),
    )
    scored, *failed = [echo.sink.ends[number] for number in numbers]
    assert [list(each.logprobs) for each in scored.suffixes] == [[-0.5, -3], []]
    assert [(each.code, each.is_retryable) for each in failed] == [(14, True), (13, False), (3, False)]
