"""Turns what a client may set into what an engine is told: nothing set is lost, nothing unset is invented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.pipelines.output import PLAIN
from smg.pipelines.stages import TextOptions
from smg.validation.sampling import max_tokens
from smg_proto.engine.v1 import card_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.pipelines.output import OutputForm

MAX_BIAS = 100.0
# The API allows a penalty of 0; engines divide by it.
LEAST_REPETITION_PENALTY = 1e-6
# Fields that have the same name and meaning on both sides.
_SAME = frozenset(
    (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "ignore_eos",
    )
)

# Fields that TextOptions is made of; most requests have none of them.
_TEXT_FIELDS = frozenset(("stop", "stop_token_ids", "no_stop_trim", "skip_special_tokens"))
_PLAIN_TEXT = TextOptions()


def engine_sampling(fields: Mapping[str, Any], *, choice_index: int = 0) -> card_pb2.Sampling:
    """The engine's view of the client's sampling options that are set; the rest stays unset."""
    sampling = card_pb2.Sampling(**{name: fields[name] for name in _SAME & fields.keys()})
    limit = max_tokens(fields)
    if limit is not None:
        sampling.max_new_tokens = limit
    if "min_tokens" in fields:
        sampling.min_new_tokens = fields["min_tokens"]
    if fields.get("repetition_penalty") == 0:
        sampling.repetition_penalty = LEAST_REPETITION_PENALTY
    seed = fields.get("sampling_seed", fields.get("seed"))
    if seed is not None:
        sampling.seed = seed
    if "stop" in fields:
        sampling.stop.extend(fields["stop"])
    if "stop_token_ids" in fields:
        sampling.stop_token_ids.extend(fields["stop_token_ids"])
    if "logit_bias" in fields:
        sampling.logit_bias_token.extend(int(token) for token in fields["logit_bias"])
        sampling.logit_bias_value.extend(map(_engine_bias, fields["logit_bias"].values()))
    if choice_index:
        sampling.choice_index = choice_index
    return sampling


def _engine_bias(value: float) -> float:
    """A bias as engines take it. Beyond these bounds a token is banned or certain all the same."""
    return min(max(value, -MAX_BIAS), MAX_BIAS)


def text_options(fields: Mapping[str, Any], *, logprobs: bool, form: OutputForm = PLAIN) -> TextOptions:
    """How the output tokens become text, from the sampling options that are set."""
    if form is PLAIN and not logprobs and _TEXT_FIELDS.isdisjoint(fields):
        return _PLAIN_TEXT
    return TextOptions(
        stop=tuple(fields.get("stop", ())),
        stop_token_ids=frozenset(fields.get("stop_token_ids", ())),
        keep_stop=fields.get("no_stop_trim", False),
        skip_special_tokens=fields.get("skip_special_tokens", True),
        logprobs=logprobs,
        form=form,
    )


def constraint(fields: Mapping[str, Any], json_schema: str | None = None) -> work_pb2.Constraint | None:
    """The form that the output must have, or None."""
    if json_schema is not None:
        return work_pb2.Constraint(json_schema=json_schema)
    if "regex" in fields:
        return work_pb2.Constraint(regex=fields["regex"])
    if "ebnf" in fields:
        return work_pb2.Constraint(ebnf=fields["ebnf"])
    return None
