"""Turns what a client may set into what an engine is told: nothing set is lost, nothing unset is invented."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.choice import TextOptions
from smg.validation.sampling import max_tokens
from smg_proto.engine.v1 import card_pb2, work_pb2

if TYPE_CHECKING:
    from smg_proto.chat.v1 import options_pb2

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


def engine_sampling(options: options_pb2.SamplingOptions, *, choice_index: int = 0) -> card_pb2.Sampling:
    """The engine's view of the client's sampling options; fields that are unset stay unset."""
    sampling = card_pb2.Sampling()
    for name in _SAME_NAME:
        if options.HasField(name):
            setattr(sampling, name, getattr(options, name))
    limit = max_tokens(options)
    if limit is not None:
        sampling.max_new_tokens = limit
    if options.min_tokens:
        sampling.min_new_tokens = options.min_tokens
    if options.HasField("sampling_seed"):
        sampling.seed = options.sampling_seed
    elif options.HasField("seed"):
        sampling.seed = options.seed
    if options.stop:
        sampling.stop.extend(options.stop)
    if options.stop_token_ids:
        sampling.stop_token_ids.extend(options.stop_token_ids)
    if options.ignore_eos:
        sampling.ignore_eos = True
    if options.logit_bias:
        sampling.logit_bias_token.extend(int(token) for token in options.logit_bias)
        sampling.logit_bias_value.extend(options.logit_bias.values())
    if choice_index:
        sampling.choice_index = choice_index
    return sampling


def text_options(options: options_pb2.SamplingOptions, *, logprobs: bool) -> TextOptions:
    """How the output tokens become text."""
    return TextOptions(
        stop=tuple(options.stop),
        stop_token_ids=frozenset(options.stop_token_ids),
        keep_stop=options.no_stop_trim,
        skip_special_tokens=options.skip_special_tokens if options.HasField("skip_special_tokens") else True,
        logprobs=logprobs,
    )


def constraint(
    options: options_pb2.SamplingOptions, json_schema: str | None = None
) -> work_pb2.Constraint | None:
    """The form that the output must have, or None."""
    if json_schema is not None:
        return work_pb2.Constraint(json_schema=json_schema)
    if options.HasField("regex"):
        return work_pb2.Constraint(regex=options.regex)
    if options.HasField("ebnf"):
        return work_pb2.Constraint(ebnf=options.ebnf)
    return None
