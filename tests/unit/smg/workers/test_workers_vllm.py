"""vLLM's protocol: requests say what ours say or are refused, and its answers become ours."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from smg.errors import EngineError, InvalidRequest
from smg.workers.sglang.plain import vllm_plain_ids
from smg.workers.sglang.receiver import CallReceiver, Progress
from smg.workers.vllm.answers import wire
from smg.workers.vllm.cards import describe_vllm
from smg.workers.vllm.requests import generate_to_vllm
from smg_proto.engine.v1 import card_pb2, work_pb2
from tests.contract.workers.collecting import Collector

CARD = card_pb2.ModelCard(id="m", context_length=100)
EOS = 2


def generate(*prompt, **fields):
    return work_pb2.Generate(sequence=1, prompt_ids=array("I", prompt).tobytes(), stream=True, **fields)


def translated(request, *, card=CARD, waits=True, choices=1):
    return generate_to_vllm(request, "r", card, choices, waits_for_reasoning=waits)


def params(request, **options):
    return translated(request, **options).sampling_params


def test_what_is_unset_is_the_models_default_and_else_neutral():
    card = card_pb2.ModelCard(defaults={"temperature": 0.5, "top_k": 7}, context_length=100)
    sent = params(generate(1), card=card)
    assert (sent.temperature, sent.top_p, sent.top_k, sent.repetition_penalty) == (0.5, 1, 7, 1)
    plain = params(generate(1))
    assert (plain.temperature, plain.top_k) == (1, 0)
    assert not plain.HasField("seed")


@pytest.mark.parametrize(("asked", "sent"), [(None, 97), (5, 5), (0, 1)])
def test_the_length_is_said_always_and_never_zero(asked, sent):
    request = generate(1, 2, 3)
    if asked is not None:
        request.sampling.max_new_tokens = asked
    assert params(request).max_tokens == sent


def test_what_was_delivered_before_becomes_prompt():
    request = generate(
        1, output_ids=array("I", [8, 9]).tobytes(), sampling={"max_new_tokens": 5, "min_new_tokens": 3}
    )
    sent = translated(request)
    assert list(sent.tokenized.input_ids) == [1, 8, 9]
    assert (sent.sampling_params.max_tokens, sent.sampling_params.min_tokens) == (3, 1)


def test_seeds_fit_and_choices_share_a_call():
    request = generate(1, sampling={"seed": 2**40 + 5, "choice_index": 1})
    sent = params(request, choices=3)
    assert (sent.seed, sent.n) == (6, 3)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("json_schema", "json_schema"),
        ("regex", "regex"),
        ("ebnf", "grammar"),
        ("structural_tag", "structural_tag"),
    ],
)
def test_forms_go_by_their_kind_from_the_first_token(kind, name):
    sent = params(generate(1, constraint={kind: "x"}))
    assert sent.WhichOneof("constraint") == name
    assert sent.grammar_from_first_token


def test_a_form_that_begins_late_needs_a_server_that_waits():
    request = generate(1, constraint={"regex": "x", "begins_after": "</think>"})
    assert not params(request).grammar_from_first_token
    with pytest.raises(InvalidRequest, match="--reasoning-parser"):
        translated(request, waits=False)


def test_what_the_protocol_cannot_say_is_refused():
    with pytest.raises(InvalidRequest, match="names no adapters"):
        translated(generate(1, lora="poet"))
    with pytest.raises(InvalidRequest, match="vLLM knows json_schema"):
        translated(generate(1, constraint={"lark": "start: x"}))
    with pytest.raises(InvalidRequest, match=r"prompt_start is 2; allowed: 0 to 1"):
        translated(generate(1, logprobs={"prompt_start": 2}))
    with pytest.raises(EngineError) as caught:
        translated(generate(1, output_ids=b"\1\0\0\0", constraint={"regex": "x"}))
    assert caught.value.can_retry


@pytest.mark.parametrize(("top_k", "sent"), [(0, 0), (3, 4), (20, 20)])
def test_one_more_of_the_likeliest_is_asked_for_as_far_as_the_server_gives(top_k, sent):
    asked = params(generate(1, logprobs={"output": True, "top_k": top_k, "prompt_start": 0}))
    assert (asked.logprobs, asked.prompt_logprobs) == (sent, sent)
    silent = params(generate(1))
    assert not silent.HasField("logprobs")
    assert not silent.HasField("prompt_logprobs")


def answered(request, *responses):
    async def run():
        collector = Collector()
        receiver = CallReceiver(
            [request], [collector], Progress(), lambda _: None, lambda _: None, wire([EOS])
        )
        for response in responses:
            receiver.on_messages([response.SerializeToString()])
        await collector.done
        return collector

    return asyncio.run(run())


def chunk(*ids, rows=None, prompt_rows=None):
    return pb.GenerateResponse(
        chunk=pb.GenerateStreamChunk(
            token_ids=ids,
            prompt_tokens=3,
            completion_tokens=len(ids),
            output_logprobs=rows,
            input_logprobs=prompt_rows,
        )
    )


def complete(*ids, **fields):
    given = {"finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": len(ids), **fields}
    return pb.GenerateResponse(complete=pb.GenerateComplete(output_ids=ids, **given))


def test_tokens_are_counted_over_all_messages():
    answer = answered(generate(1, 2, 3), chunk(5), chunk(6, 7), chunk(8), complete(8, finish_reason="length"))
    assert answer.ids == [5, 6, 7, 8]
    assert answer.finished.completion_tokens == 4
    assert answer.finished.reason == work_pb2.FINISH_REASON_LENGTH


def test_the_models_own_end_is_named_as_what_ended_it():
    answer = answered(generate(1, 2, 3), chunk(5), chunk(EOS), complete(EOS))
    assert answer.finished.matched_token_id == EOS
    other = answered(generate(1, 2, 3), chunk(5), complete(5, matched_stop_str="x"))
    assert not other.finished.HasField("matched_token_id")
    assert other.finished.matched_stop == "x"


def test_nothing_asked_for_is_nothing_told():
    request = generate(1, 2, 3, sampling={"max_new_tokens": 0})
    answer = answered(request, chunk(EOS), complete(EOS))
    assert answer.ids == []
    assert answer.finished.reason == work_pb2.FINISH_REASON_LENGTH
    assert answer.finished.completion_tokens == 0
    assert not answer.finished.HasField("matched_token_id")


def test_the_likeliest_are_sorted_and_cut():
    top = pb.TopLogProbs(token_ids=[9, 4, 5, 6], values=[-5.0, -0.5, -1.0, -2.0])
    rows = pb.OutputLogProbs(token_logprobs=[-5.0], token_ids=[9], top_logprobs=[top])
    request = generate(1, 2, 3, logprobs={"output": True, "top_k": 2})
    answer = answered(request, chunk(9, rows=rows), complete(9))
    [row] = answer.logprobs
    assert row.logprob == -5
    assert (list(row.top_token), list(row.top_logprob)) == ([4, 5], [-0.5, -1.0])


def test_prompt_logprobs_are_those_from_where_they_were_asked_to_begin():
    rows = pb.InputLogProbs(token_ids=[1, 2, 3])
    rows.token_logprobs.add()
    for value in (-1.0, -2.0):
        rows.token_logprobs.add(value=value)
        rows.top_logprobs.add()
    answer = answered(
        generate(1, 2, 3, logprobs={"prompt_start": 1}), chunk(5, prompt_rows=rows), complete(5)
    )
    assert [row.logprob for row in answer.started[0].prompt_logprobs] == [-1, -2]


def test_ids_are_read_from_the_bytes_of_a_plain_chunk_alone():
    assert vllm_plain_ids(chunk(5, 300, 70_000).SerializeToString()) == [5, 300, 70_000]
    assert vllm_plain_ids(complete(5).SerializeToString()) is None
    assert vllm_plain_ids(b"") is None


def test_a_model_that_embeds_is_described_so():
    model = pb.GetModelInfoResponse(
        model_path="/m", is_generation=False, default_sampling_params_json='{"max_tokens": 9}'
    )
    server = pb.GetServerInfoResponse(max_num_seqs=5, data_parallel_size=2)
    description = describe_vllm(model, server, "0.32", "i")
    card = description.models[0]
    assert (card.id, card.capabilities.embed, card.capabilities.generate) == ("/m", True, False)
    assert card.defaults.max_new_tokens == 9
    assert (description.max_running, description.data_parallel_size, description.engine) == (5, 2, "vllm")
