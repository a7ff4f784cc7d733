"""Turns our requests into SGLang's. What SGLang cannot do is refused: nothing is left out in silence.

SGLang's numbers have no "unset": its zero temperature is greedy and its zero n is no answer at all. So every number
is spelled out: the request's, else the model's default, else the neutral one. Source: sglang_scheduler.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from smg.errors import UNIMPLEMENTED, EngineError, InvalidRequest
from smg.workers.listeners import ids_from_bytes
from smg.workers.sglang.media import put_media

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg_proto.engine.v1 import card_pb2, work_pb2

_NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}

# Our name of a constraint's kind to SGLang's.
_CONSTRAINTS = {
    "json_schema": "json_schema",
    "regex": "regex",
    "ebnf": "ebnf_grammar",
    "structural_tag": "structural_tag",
}

CONSTRAINT_KINDS = tuple(_CONSTRAINTS)


def generate_to_sglang(
    request: work_pb2.Generate, request_id: str, defaults: card_pb2.Sampling, choices: int = 1
) -> sglang_pb2.GenerateRequest:
    """Translate a sequence to generate, or all choices of a prompt.

    Tokens that another engine has delivered become part of the prompt: SGLang then spends none on them, but its
    penalties do not count them as output.

    A form that begins after a text needs a server with --reasoning-parser: its grammar then waits for the end of the
    reasoning as that parser knows it, whatever the text. Without the flag it applies the form from the first token.

    Args:
        request: what to generate; the first of the choices.
        request_id: SGLang's name for it, in use by no other request.
        defaults: the model's sampling numbers, ModelCard.defaults.
        choices: how many; all with the seed of the first, the server draws for each by itself.

    Raises:
        InvalidRequest: a constraint of a kind that SGLang does not know, or log-probabilities from beyond the prompt.
        EngineError: a constrained sequence is to be continued; another worker may be able to.
    """
    prior_tokens = len(request.output_ids) // 4
    if prior_tokens and request.HasField("constraint"):
        raise EngineError(
            "SGLang's protocol cannot continue a constrained output",
            engine_code=UNIMPLEMENTED,
            can_retry=True,
        )
    result = sglang_pb2.GenerateRequest(request_id=request_id, stream=request.stream, lora_id=request.lora)
    result.tokenized.input_ids.extend(ids_from_bytes(request.prompt_ids + request.output_ids))
    if request.HasField("data_parallel_rank"):
        result.data_parallel_rank = request.data_parallel_rank
    _put_sampling(result.sampling_params, request.sampling, defaults, prior_tokens)
    result.sampling_params.n = choices
    # With this flag a server counts the tokens of reasoning, and holds a form back until it has ended.
    result.require_reasoning = request.reasoning
    if request.HasField("constraint"):
        _put_constraint(result.sampling_params, request.constraint)
        result.require_reasoning = bool(request.constraint.begins_after)
    _put_logprobs(result, request.logprobs, len(request.prompt_ids) // 4)
    if request.media:
        put_media(result.mm_inputs, request.media)
    return result


def refuse_late_form(request: work_pb2.Generate) -> None:
    """Refuse a form that begins after the reasoning, for a server that would apply it from the first token.

    Raises:
        InvalidRequest: the request has such a form.
    """
    if request.constraint.begins_after:
        raise InvalidRequest(
            "the model reasons before it answers, and its SGLang server was started without --reasoning-parser: it "
            "cannot hold the form of the answer back until then; start it with that flag, or turn thinking off",
            code="constraint_not_supported",
        )


def score_to_sglang(
    ids: bytes, label_ids: list[int], request: work_pb2.Score, request_id: str
) -> sglang_pb2.GenerateRequest:
    """Ask for the log-probabilities of labels as the next token: a request that generates nothing."""
    result = _prefill(ids, request, request_id)
    result.token_ids_logprob.extend(label_ids)
    result.logprob_start_len = -1
    return result


def score_label_to_sglang(
    ids: bytes, label: bytes, request: work_pb2.Score, request_id: str
) -> sglang_pb2.GenerateRequest:
    """Ask for the log-probabilities of a label of several tokens, as those of a prompt's last tokens."""
    result = _prefill(ids + label, request, request_id)
    # SGLang gives no number for the position it starts at: it starts one early.
    result.logprob_start_len = len(ids) // 4 - 1
    return result


def embed_to_sglang(request: work_pb2.Embed, request_id: str) -> sglang_pb2.EmbedRequest:
    """Translate an input to embed.

    Raises:
        InvalidRequest: an adapter or a layer is named, which SGLang's protocol cannot do here.
    """
    if request.lora:
        raise InvalidRequest(
            f"adapter {request.lora!r}: SGLang's protocol embeds without adapters", param="lora"
        )
    if request.HasField("layer"):
        raise InvalidRequest(
            f"layer {request.layer}: SGLang's protocol embeds the last layer only", param="layer"
        )
    result = sglang_pb2.EmbedRequest(request_id=request_id)
    result.tokenized.input_ids.extend(ids_from_bytes(request.input_ids))
    return result


def classify_to_sglang(request: work_pb2.Classify, request_id: str) -> sglang_pb2.EmbedRequest:
    """Translate an input to classify."""
    result = sglang_pb2.EmbedRequest(request_id=request_id)
    ids = ids_from_bytes(request.input_ids)
    result.tokenized.input_ids.extend(ids)
    if request.HasField("second_at"):
        result.token_type_ids.extend([0] * request.second_at + [1] * (len(ids) - request.second_at))
        result.is_cross_encoder = True
    return result


def _prefill(ids: bytes, request: work_pb2.Score, request_id: str) -> sglang_pb2.GenerateRequest:
    result = sglang_pb2.GenerateRequest(request_id=request_id, lora_id=request.lora, return_logprob=True)
    result.tokenized.input_ids.extend(ids_from_bytes(ids))
    params = result.sampling_params
    params.temperature, params.top_p, params.top_k = 0.0, 1.0, -1
    params.repetition_penalty, params.n, params.max_new_tokens = 1.0, 1, 0
    params.skip_special_tokens = params.spaces_between_special_tokens = True
    return result


def _put_sampling(
    target: sglang_pb2.SamplingParams,
    source: card_pb2.Sampling,
    defaults: card_pb2.Sampling,
    prior_tokens: int,
) -> None:
    for name, neutral in _NEUTRAL.items():
        setattr(target, name, number((source, defaults), name, neutral))
    for limits in (source, defaults):
        if limits.HasField("max_new_tokens"):
            target.max_new_tokens = max(0, limits.max_new_tokens - prior_tokens)
            break
    target.min_new_tokens = max(0, source.min_new_tokens - prior_tokens)
    target.stop.extend(source.stop)
    target.stop_token_ids.extend(source.stop_token_ids)
    target.ignore_eos = source.ignore_eos
    for token, value in zip(source.logit_bias_token, source.logit_bias_value, strict=True):
        target.logit_bias[str(token)] = value
    target.skip_special_tokens = target.spaces_between_special_tokens = True
    if source.HasField("seed"):
        # The protocol has no field for a seed: servicers that know one look here. A Struct holds doubles, which
        # are exact up to 2**53.
        target.custom_params["sampling_seed"] = (source.seed + source.choice_index) % 2**53


def number(places: Iterable[Any], name: str, neutral: float) -> float:
    """The number in the first message that has it."""
    for place in places:
        if place.HasField(name):
            return getattr(place, name)
    return neutral


def _put_constraint(target: sglang_pb2.SamplingParams, constraint: work_pb2.Constraint) -> None:
    kind = constraint.WhichOneof("kind")
    if kind is None:
        return
    name = _CONSTRAINTS.get(kind)
    if name is None:
        raise InvalidRequest(
            f"constraint of kind {kind!r}: SGLang knows {', '.join(CONSTRAINT_KINDS)}", param="constraint"
        )
    setattr(target, name, getattr(constraint, kind))


def _put_logprobs(
    target: sglang_pb2.GenerateRequest, options: work_pb2.LogprobsOptions, prompt_tokens: int
) -> None:
    if options.prompt_start > prompt_tokens:
        raise InvalidRequest(
            f"logprobs.prompt_start is {options.prompt_start}; allowed: 0 to {prompt_tokens}, the prompt's length",
            param="logprobs",
        )
    target.return_logprob = bool(options.output or options.token_ids or options.HasField("prompt_start"))
    target.top_logprobs_num = options.top_k
    target.token_ids_logprob.extend(options.token_ids)
    target.logprob_start_len = max(0, options.prompt_start - 1) if options.HasField("prompt_start") else -1
