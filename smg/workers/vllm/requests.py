"""Turns our requests into vLLM's. What vLLM cannot do is refused: nothing is left out in silence.

Source: vllm_engine.proto, and what smg-grpc-servicer makes of it: zeros of top_p and repetition_penalty count as unset there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_grpc_proto.generated import vllm_engine_pb2 as vllm_pb2

from smg.errors import UNIMPLEMENTED, EngineError, InvalidRequest
from smg.workers.listeners import ids_from_bytes
from smg.workers.sglang.requests import number

if TYPE_CHECKING:
    from smg_proto.engine.v1 import card_pb2, work_pb2

_NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
# Our name of a constraint's kind to vLLM's.
_CONSTRAINTS = {
    "json_schema": "json_schema",
    "regex": "regex",
    "ebnf": "grammar",
    "structural_tag": "structural_tag",
}
CONSTRAINT_KINDS = tuple(_CONSTRAINTS)
# vLLM's default bound (--max-logprobs).
MAX_LOGPROBS = 20
_SEEDS = 1 << 31


def generate_to_vllm(
    request: work_pb2.Generate,
    request_id: str,
    card: card_pb2.ModelCard,
    choices: int = 1,
    *,
    waits_for_reasoning: bool,
) -> vllm_pb2.GenerateRequest:
    """Translate a sequence to generate, or all choices of a prompt.

    Tokens that another engine has delivered become part of the prompt: vLLM then spends none on them, but its penalties do
    not count them as output.

    Args:
        request: what to generate; the first of the choices.
        request_id: vLLM's name for it, in use by no other request.
        card: the model's.
        choices: how many; all with the seed of the first, the server draws for each by itself.
        waits_for_reasoning: the server holds a form back until its reasoning parser has seen the end of the reasoning.

    Raises:
        InvalidRequest: what vLLM's protocol cannot say.
        EngineError: a constrained sequence is to be continued; another worker may be able to.
    """
    prior_tokens = len(request.output_ids) // 4
    if prior_tokens and request.HasField("constraint"):
        raise EngineError(
            "vLLM's protocol cannot continue a constrained output", engine_code=UNIMPLEMENTED, can_retry=True
        )
    if request.lora:
        raise InvalidRequest(f"adapter {request.lora!r}: vLLM's protocol names no adapters", param="lora")
    result = vllm_pb2.GenerateRequest(request_id=request_id, stream=request.stream)
    result.tokenized.input_ids.extend(ids_from_bytes(request.prompt_ids + request.output_ids))
    if request.HasField("data_parallel_rank"):
        result.data_parallel_rank = request.data_parallel_rank
    params = result.sampling_params
    _put_sampling(params, request.sampling, card, len(result.tokenized.input_ids), prior_tokens)
    params.n = choices
    if request.HasField("constraint"):
        _put_constraint(params, request.constraint, waits_for_reasoning=waits_for_reasoning)
    _put_logprobs(params, request.logprobs, len(request.prompt_ids) // 4)
    return result


def _put_sampling(
    target: vllm_pb2.SamplingParams,
    source: card_pb2.Sampling,
    card: card_pb2.ModelCard,
    prompt_tokens: int,
    prior_tokens: int,
) -> None:
    places = (source, card.defaults)
    for name, neutral in _NEUTRAL.items():
        setattr(target, name, number(places, name, neutral))
    top_k = next((each.top_k for each in places if each.HasField("top_k")), -1)
    # vLLM's word for all tokens is 0.
    target.top_k = max(0, top_k)
    most = next((each.max_new_tokens for each in places if each.HasField("max_new_tokens")), None)
    if most is not None:
        # It generates at least one; what was not asked for is not told.
        target.max_tokens = max(1, most - prior_tokens)
    elif card.context_length:
        target.max_tokens = max(1, card.context_length - prompt_tokens)
    target.min_tokens = min(
        max(0, source.min_new_tokens - prior_tokens), target.max_tokens or source.min_new_tokens
    )
    target.stop.extend(source.stop)
    target.stop_token_ids.extend(source.stop_token_ids)
    target.ignore_eos = source.ignore_eos
    for token, value in zip(source.logit_bias_token, source.logit_bias_value, strict=True):
        target.logit_bias[token] = value
    target.skip_special_tokens = target.spaces_between_special_tokens = True
    if source.HasField("seed"):
        target.seed = (source.seed + source.choice_index) % _SEEDS


def _put_constraint(
    target: vllm_pb2.SamplingParams, constraint: work_pb2.Constraint, *, waits_for_reasoning: bool
) -> None:
    if constraint.begins_after and not waits_for_reasoning:
        raise InvalidRequest(
            "the model reasons before it answers, and its vLLM server was started without --reasoning-parser: it "
            "cannot hold the form of the answer back until then; start it with that flag, or turn thinking off",
            code="constraint_not_supported",
        )
    kind = constraint.WhichOneof("kind")
    if kind is None:
        return
    name = _CONSTRAINTS.get(kind)
    if name is None:
        raise InvalidRequest(
            f"constraint of kind {kind!r}: vLLM knows {', '.join(CONSTRAINT_KINDS)}", param="constraint"
        )
    setattr(target, name, getattr(constraint, kind))
    target.grammar_from_first_token = not constraint.begins_after


def _put_logprobs(
    target: vllm_pb2.SamplingParams, options: work_pb2.LogprobsOptions, prompt_tokens: int
) -> None:
    if options.token_ids:
        raise InvalidRequest(
            "log-probabilities of ids that are asked for: vLLM's protocol has no field for them",
            param="logprobs",
        )
    if options.prompt_start > prompt_tokens:
        raise InvalidRequest(
            f"logprobs.prompt_start is {options.prompt_start}; allowed: 0 to {prompt_tokens}, the prompt's length",
            param="logprobs",
        )
    # The chosen token takes one of the places, also where it is not among the likeliest.
    count = min(options.top_k + 1, MAX_LOGPROBS) if options.top_k else 0
    if options.output:
        target.logprobs = count
    if options.HasField("prompt_start"):
        target.prompt_logprobs = count
