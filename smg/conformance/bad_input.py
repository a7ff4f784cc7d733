"""Bad input fails its own sequence, by name, value and what is allowed; neighbours and the stream go on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from smg.conformance.checking import NotOffered, check, check_each
from smg.conformance.session_client import to_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg.conformance.worker import Worker

    Work = work_pb2.Generate | work_pb2.Score | work_pb2.Embed | work_pb2.Classify

INVALID_ARGUMENT = 3

# What is wrong, and a part of what the refusal says.
SAMPLING = [
    ({"temperature": math.nan}, "sampling.temperature is nan"),
    ({"temperature": -0.1}, "sampling.temperature is -0.1"),
    ({"temperature": 2.5}, "allowed: 0 to 2"),
    ({"temperature": math.inf}, "sampling.temperature is inf"),
    ({"top_p": 0.0}, "sampling.top_p is 0"),
    ({"top_p": 1.5}, "sampling.top_p is 1.5"),
    ({"top_k": 0}, "sampling.top_k is 0"),
    ({"top_k": -2}, "sampling.top_k is -2"),
    ({"min_p": 1.01}, "sampling.min_p is 1.01"),
    ({"presence_penalty": 2.01}, "sampling.presence_penalty"),
    ({"frequency_penalty": -2.01}, "sampling.frequency_penalty"),
    ({"repetition_penalty": 0.0}, "sampling.repetition_penalty is 0"),
    ({"max_new_tokens": 3, "min_new_tokens": 4}, "sampling.min_new_tokens is 4"),
    ({"stop_token_ids": [2**32 - 1]}, "sampling.stop_token_ids[0] is 4294967295"),
    ({"logit_bias_token": [1, 2], "logit_bias_value": [1.0]}, "sampling.logit_bias_value has 1"),
    ({"logit_bias_token": [1], "logit_bias_value": [101.0]}, "sampling.logit_bias_value[0] is 101"),
    ({"logit_bias_token": [1], "logit_bias_value": [math.nan]}, "sampling.logit_bias_value[0] is nan"),
    ({"logit_bias_token": [2**31], "logit_bias_value": [1.0]}, "sampling.logit_bias_token[0]"),
]
GENERATE = [
    ({"prompt_ids": b""}, "prompt_ids is empty"),
    ({"prompt_ids": b"\1\0\0\0\2"}, "prompt_ids has 5 bytes"),
    ({"prompt_ids": to_bytes([1, 2**32 - 1])}, "prompt_ids[1] is 4294967295"),
    ({"output_ids": b"\1\0\0"}, "output_ids has 3 bytes"),
    ({"output_ids": to_bytes([2**31])}, "output_ids[0] is 2147483648"),
    ({"model": "no-such-model"}, "model is 'no-such-model'"),
    ({"lora": "no-such-adapter"}, "lora is 'no-such-adapter'"),
    ({"logprobs": {"top_k": 21}}, "logprobs.top_k is 21"),
    ({"logprobs": {"token_ids": [2**32 - 1]}}, "logprobs.token_ids[0]"),
    ({"constraint": work_pb2.Constraint()}, "constraint"),
]


async def assert_refused(worker: Worker, message: Work, words: str) -> None:
    async with worker.session() as session:
        record, neighbour = await session.run(message, worker.generate(max_new_tokens=2, ignore_eos=True))
        assert record.failed.code == INVALID_ARGUMENT, record.failed
        assert words in record.failed.message
        assert not record.failed.is_retryable
        assert len(neighbour.tokens) == 2
        later = await session.run_one(worker.generate(max_new_tokens=1, ignore_eos=True))
        assert len(later.tokens) == 1


@check_each({str(fields): (fields, words) for fields, words in SAMPLING})
async def sampling_numbers_out_of_range_are_refused(
    worker: Worker, fields: dict[str, Any], words: str
) -> None:
    await assert_refused(worker, worker.generate(**fields), words)


@check_each({words: (fields, words) for fields, words in GENERATE})
async def malformed_generates_are_refused(worker: Worker, fields: dict[str, Any], words: str) -> None:
    message = worker.generate()
    for name in fields:
        message.ClearField(cast("Any", name))
    message.MergeFrom(work_pb2.Generate(**fields))
    await assert_refused(worker, message, words)


@check
async def a_token_id_just_past_the_vocabulary_is_refused(worker: Worker) -> None:
    size = worker.card.vocab_size
    await assert_refused(
        worker, worker.generate([1, size]), f"prompt_ids[1] is {size}; allowed: 0 to {size - 1}"
    )


@check
async def a_prompt_that_fills_the_context_is_refused(worker: Worker) -> None:
    context = worker.card.context_length
    if not context:
        raise NotOffered("the model has no context length")
    prompt = (worker.ids("Too long. ") * context)[:context]
    await assert_refused(worker, worker.generate(prompt), f"the context of {context} tokens")


SCORE = [
    (work_pb2.Score(prefix_ids=to_bytes([1])), "suffixes has 0"),
    (work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(label_ids=[1])]), "suffixes[0].ids is empty"),
    (work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(ids=to_bytes([1]))]), "suffixes[0] has neither"),
    (
        work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(ids=b"12345", label_ids=[1])]),
        "suffixes[0].ids has 5 bytes",
    ),
    (
        work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(ids=to_bytes([1]), label_ids=[2**32 - 1])]),
        "suffixes[0].label_ids[0]",
    ),
    (
        work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(ids=to_bytes([1]), label_sequences=[b""])]),
        "suffixes[0].label_sequences[0] is empty",
    ),
]


@check_each({words: (message, words) for message, words in SCORE})
async def malformed_scores_are_refused(worker: Worker, message: work_pb2.Score, words: str) -> None:
    worker.need("score")
    copy = work_pb2.Score()
    copy.CopyFrom(message)
    await assert_refused(worker, copy, words)


@check
async def malformed_embeds_are_refused(worker: Worker) -> None:
    worker.need("embed")
    await assert_refused(worker, work_pb2.Embed(), "input_ids is empty")
    one = to_bytes([1])
    for size in (0, worker.card.embedding_size + 1):
        await assert_refused(worker, work_pb2.Embed(input_ids=one, dimensions=size), f"dimensions is {size}")


@check
async def what_the_model_does_not_serve_is_refused_as_unimplemented(worker: Worker) -> None:
    if worker.card.capabilities.classify:
        await assert_refused(worker, work_pb2.Classify(), "input_ids is empty")
        return
    async with worker.session() as session:
        record = await session.run_one(work_pb2.Classify(input_ids=to_bytes([1])))
    assert record.failed.code == 12
    assert "does not serve classify" in record.failed.message
