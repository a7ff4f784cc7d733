"""Turns SGLang's requests into the contract's work. Source: sglang_scheduler.proto of smg-grpc-proto."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import card_pb2, work_pb2

if TYPE_CHECKING:
    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

# SGLang's word for "all tokens", beside -1.
_ALL_TOKENS = 1 << 30
_FORMS = {
    "regex": "regex",
    "json_schema": "json_schema",
    "ebnf_grammar": "ebnf",
    "structural_tag": "structural_tag",
}
_SEED = "sampling_seed"


class CannotDo(Exception):
    """A request asks for what no engine here does; the text says what."""


def generations(request: sglang_pb2.GenerateRequest) -> list[work_pb2.Generate]:
    """The sequences of a request, one for each choice.

    Raises:
        CannotDo: it carries what is no token id, or wants what is no token.
    """
    _refuse_what_is_not_done(request)
    generate = work_pb2.Generate(
        prompt_ids=ids_to_bytes(request.tokenized.input_ids),
        sampling=_sampling(request.sampling_params),
        stream=request.stream,
        lora=request.lora_id,
        request_id=request.request_id,
        reasoning=request.require_reasoning,
    )
    if request.HasField("data_parallel_rank") and request.data_parallel_rank >= 0:
        generate.data_parallel_rank = request.data_parallel_rank
    form = request.sampling_params.WhichOneof("constraint")
    if form:
        setattr(generate.constraint, _FORMS[form], getattr(request.sampling_params, form))
    if request.return_logprob:
        _put_logprobs(generate.logprobs, request)
    choices: list[work_pb2.Generate] = []
    for index in range(max(1, request.sampling_params.n)):
        choice = work_pb2.Generate()
        choice.CopyFrom(generate)
        if index:
            choice.sampling.choice_index = index
        choices.append(choice)
    return choices


def is_scoring(request: sglang_pb2.GenerateRequest) -> bool:
    """Whether it asks for the log-probabilities of labels as the next token, and for no token."""
    params = request.sampling_params
    return (
        bool(request.token_ids_logprob)
        and params.HasField("max_new_tokens")
        and not params.max_new_tokens
        and len(request.tokenized.input_ids) > 0
    )


def scoring(request: sglang_pb2.GenerateRequest) -> work_pb2.Score:
    """Such a request as a Score: its last token is the suffix."""
    _refuse_what_is_not_done(request)
    ids = request.tokenized.input_ids
    suffix = work_pb2.ScoreSuffix(ids=ids_to_bytes(ids[-1:]), label_ids=request.token_ids_logprob)
    return work_pb2.Score(
        prefix_ids=ids_to_bytes(ids[:-1]),
        suffixes=[suffix],
        lora=request.lora_id,
        request_id=request.request_id,
    )


def _refuse_what_is_not_done(request: sglang_pb2.GenerateRequest) -> None:
    for field in ("mm_inputs", "disaggregated_params"):
        if request.HasField(field):
            raise CannotDo(f"{field} is set; this server takes token ids alone")
    for field in ("return_hidden_states", "custom_logit_processor", "input_embeds"):
        if getattr(request, field):
            raise CannotDo(f"{field} is set; this server does not do that")


def _sampling(source: sglang_pb2.SamplingParams) -> card_pb2.Sampling:
    """SGLang's numbers have no "unset": each is meant, but for factors of zero, which nobody means."""
    result = card_pb2.Sampling(
        temperature=source.temperature,
        top_p=source.top_p or 1.0,
        top_k=-1 if source.top_k in (0, _ALL_TOKENS) else source.top_k,
        min_p=source.min_p,
        presence_penalty=source.presence_penalty,
        frequency_penalty=source.frequency_penalty,
        repetition_penalty=source.repetition_penalty or 1.0,
        min_new_tokens=source.min_new_tokens,
        stop_token_ids=source.stop_token_ids,
        stop=source.stop,
        ignore_eos=source.ignore_eos,
    )
    if source.HasField("max_new_tokens"):
        result.max_new_tokens = source.max_new_tokens
    for token, value in source.logit_bias.items():
        if not token.isdecimal():
            raise CannotDo(f"logit_bias has the key {token!r}; allowed: token ids")
        result.logit_bias_token.append(int(token))
        result.logit_bias_value.append(value)
    seed = source.custom_params.fields.get(_SEED)
    if seed is not None and seed.WhichOneof("kind") == "number_value":
        result.seed = int(seed.number_value)
    return result


def _put_logprobs(target: work_pb2.LogprobsOptions, request: sglang_pb2.GenerateRequest) -> None:
    target.output = True
    target.top_k = max(0, request.top_logprobs_num)
    target.token_ids.extend(request.token_ids_logprob)
    if request.logprob_start_len >= 0:
        target.prompt_start = min(request.logprob_start_len, len(request.tokenized.input_ids))
