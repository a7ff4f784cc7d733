"""Turns the contract's work into arguments of Engine.async_generate. Pure.

What SGLang cannot do as the contract has it is refused: nothing is left out in silence. Names and defaults of sampling
parameters: SGLang 0.5.23, srt/sampling/sampling_params.py.
"""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

from servicers.checks import UNIMPLEMENTED, Refusal
from servicers.token_bytes import ID_BYTES, ids_from_bytes

if TYPE_CHECKING:
    from array import array

    from servicers.sglang.cards import ServedByUs
    from smg_proto.engine.v1 import card_pb2, work_pb2

CONSTRAINTS = ("json_schema", "regex", "ebnf", "structural_tag")
# An answer that nobody reads before its end still tells so often that it lives.
_WHOLE_INTERVAL = 16
_MAX_STOPS = 32
_SEEDS = 1 << 63

_NUMBERS = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip


class Refused(Exception):
    """A sequence cannot be taken as it is."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def generate_call(request: work_pb2.Generate, rid: str, served: ServedByUs) -> dict[str, Any]:
    """Arguments that generate a sequence.

    Tokens that another engine has delivered become part of the prompt.

    Raises:
        Refused: it continues something whose state SGLang cannot take over, or a form is to begin late and no reasoning
            parser was configured to tell when.
    """
    prior = ids_from_bytes(request.output_ids)
    call: dict[str, Any] = {
        "rid": rid,
        "input_ids": [*ids_from_bytes(request.prompt_ids), *prior],
        "sampling_params": _sampling(request, served, prior),
        "stream": True,
        "require_reasoning": request.reasoning,
    }
    if request.lora:
        call["lora_path"] = request.lora
    if request.HasField("data_parallel_rank") and served.ranks > 1:
        call["routed_dp_rank"] = request.data_parallel_rank
    if request.traceparent:
        call["external_trace_header"] = {"traceparent": request.traceparent}
    if request.HasField("constraint"):
        _put_constraint(call, request.constraint, served, continues=bool(prior))
    if request.HasField("logprobs"):
        _put_logprobs(call, request.logprobs, len(request.prompt_ids) // ID_BYTES)
    return call


def score_call(ids: list[int], label_ids: list[int], *, start: int = -1) -> dict[str, Any]:
    """One prompt of a scoring: what `score_batch` takes.

    Args:
        ids: the prompt.
        label_ids: whose log-probability as the next token to return; at least one, or SGLang takes a list of such lists
            for something else.
        start: position from which to return log-probabilities of the prompt; -1 for none.
    """
    return {"input_ids": ids, "token_ids_logprob": label_ids, "logprob_start_len": start}


def score_batch(calls: list[dict[str, Any]], rid: str, lora: str) -> dict[str, Any]:
    """Arguments that compute several prompts together and generate nothing."""
    arguments: dict[str, Any] = {name: [call[name] for call in calls] for name in calls[0]}
    # In the scheduler an abort reaches every request whose name begins with the one it gives.
    arguments["rid"] = [f"{rid}-{index:04}" for index in range(len(calls))]
    arguments["sampling_params"] = {"temperature": 0.0, "max_new_tokens": 0}
    arguments["return_logprob"] = True
    if lora:
        arguments["lora_path"] = lora
    return arguments


def _sampling(request: work_pb2.Generate, served: ServedByUs, prior: array[int]) -> dict[str, Any]:
    source, defaults = request.sampling, served.card.defaults
    result: dict[str, Any] = {}
    for name in _NUMBERS:
        for place in (source, defaults):
            if place.HasField(name):
                result[name] = getattr(place, name)
                break
    room = max(0, served.card.context_length - len(request.prompt_ids) // ID_BYTES - len(prior))
    most = _most_tokens(source, defaults)
    most = room if most is None else min(room, max(0, most - len(prior)))
    result["max_new_tokens"] = most
    result["min_new_tokens"] = min(most, max(0, source.min_new_tokens - len(prior)))
    if source.stop_token_ids:
        result["stop_token_ids"] = list(source.stop_token_ids)
    if source.stop:
        # A hint, and what an engine matches saves it the rest. The router matches all of them.
        result["stop"] = list(source.stop[:_MAX_STOPS])
    if source.ignore_eos:
        result["ignore_eos"] = True
    bias = {
        str(token): value
        for token, value in zip(source.logit_bias_token, source.logit_bias_value, strict=True)
    }
    if prior:
        _put_prior_penalties(result, bias, prior)
    if bias:
        result["logit_bias"] = bias
    # An engine that computes deterministically takes one and the same seed for all requests without one.
    seed = source.seed + source.choice_index if source.HasField("seed") else secrets.randbelow(_SEEDS)
    result["sampling_seed"] = (seed + _SEEDS) % (2 * _SEEDS) - _SEEDS
    if not request.stream:
        result["stream_interval"] = _WHOLE_INTERVAL
    return result


def _most_tokens(source: card_pb2.Sampling, defaults: card_pb2.Sampling) -> int | None:
    for place in (source, defaults):
        if place.HasField("max_new_tokens"):
            return place.max_new_tokens
    return None


def _put_prior_penalties(params: dict[str, Any], bias: dict[str, float], prior: array[int]) -> None:
    """SGLang counts output of its own alone. What is subtracted per occurrence can be subtracted beforehand."""
    for name, neutral in (("presence_penalty", 0.0), ("repetition_penalty", 1.0)):
        if params.get(name, neutral) != neutral:
            raise Refused(_cannot_continue(f"sampling.{name}"))
    penalty = params.get("frequency_penalty", 0.0)
    if penalty:
        for token, count in Counter(prior).items():
            bias[str(token)] = bias.get(str(token), 0.0) - penalty * count


def _put_constraint(
    call: dict[str, Any], constraint: work_pb2.Constraint, served: ServedByUs, *, continues: bool
) -> None:
    if continues:
        raise Refused(_cannot_continue("constraint"))
    if constraint.begins_after:
        if not served.reasons:
            raise Refused(
                Refusal(
                    UNIMPLEMENTED,
                    f"constraint.begins_after is {constraint.begins_after[:40]!r}: SGLang holds a form back until its "
                    "reasoning parser has seen the end of the reasoning, and was started without one; start the worker "
                    "with --engine-arg reasoning_parser=NAME",
                )
            )
        call["require_reasoning"] = True
    kind = constraint.WhichOneof("kind")
    call["sampling_params"][kind] = getattr(constraint, kind or "")


def _cannot_continue(field: str) -> Refusal:
    return Refusal(
        UNIMPLEMENTED,
        f"SGLang cannot continue another engine's output with {field}: it would begin it anew",
        is_retryable=True,
    )


def _put_logprobs(call: dict[str, Any], options: work_pb2.LogprobsOptions, prompt_tokens: int) -> None:
    has_prompt = options.HasField("prompt_start")
    if not (options.output or options.token_ids or has_prompt):
        return
    call["return_logprob"] = True
    call["top_logprobs_num"] = options.top_k
    if options.token_ids:
        call["token_ids_logprob"] = list(options.token_ids)
    if has_prompt and options.prompt_start < prompt_tokens:
        # SGLang gives no number for the position it starts at: it starts one early.
        call["logprob_start_len"] = max(0, options.prompt_start - 1)
    else:
        call["logprob_start_len"] = -1
