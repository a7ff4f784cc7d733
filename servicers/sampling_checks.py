"""Says what is out of range in the sampling numbers of a sequence. Pure; ranges: proto/smg/engine/v1/card.proto."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from smg_proto.engine.v1 import card_pb2

MAX_LOGIT_BIAS = 100.0
# A bound of ours: what is looked through at every step must not grow with the request.
MAX_LISTED_TOKENS = 4096


class _Range(NamedTuple):
    name: str
    low: float
    high: float
    excludes_low: bool
    text: str


_RANGES = (
    _Range("temperature", 0, 2, False, "0 to 2"),
    _Range("top_p", 0, 1, True, "above 0, at most 1"),
    _Range("min_p", 0, 1, False, "0 to 1"),
    _Range("presence_penalty", -2, 2, False, "-2 to 2"),
    _Range("frequency_penalty", -2, 2, False, "-2 to 2"),
    _Range("repetition_penalty", 0, 2, True, "above 0, at most 2"),
)


def check_sampling(sampling: card_pb2.Sampling, vocab_size: int) -> str:
    """The first fault in words; empty when there is none."""
    for field, value in sampling.ListFields():
        allowed = _RANGE_BY_NAME.get(field.name)
        # Written so that NaN, which compares false with everything, is outside.
        if allowed and not (
            allowed.low <= value <= allowed.high and not (allowed.excludes_low and value == allowed.low)
        ):
            return f"sampling.{allowed.name} is {value}; allowed: {allowed.text}"
    return _whole_number_fault(sampling) or _token_fault(sampling, vocab_size)


_RANGE_BY_NAME = {each.name: each for each in _RANGES}


def _whole_number_fault(sampling: card_pb2.Sampling) -> str:
    if sampling.HasField("top_k") and sampling.top_k != -1 and sampling.top_k < 1:
        return f"sampling.top_k is {sampling.top_k}; allowed: -1 for all, or at least 1"
    if sampling.HasField("max_new_tokens") and sampling.min_new_tokens > sampling.max_new_tokens:
        return (
            f"sampling.min_new_tokens is {sampling.min_new_tokens}; allowed: at most max_new_tokens, "
            f"{sampling.max_new_tokens}"
        )
    return ""


def _token_fault(sampling: card_pb2.Sampling, vocab_size: int) -> str:
    for name, ids in (
        ("stop_token_ids", sampling.stop_token_ids),
        ("logit_bias_token", sampling.logit_bias_token),
    ):
        if len(ids) > MAX_LISTED_TOKENS:
            return f"sampling.{name} has {len(ids)} entries; allowed: at most {MAX_LISTED_TOKENS}"
        for index, token in enumerate(ids):
            if token >= vocab_size:
                return f"sampling.{name}[{index}] is {token}; allowed: 0 to {vocab_size - 1}"
    values = sampling.logit_bias_value
    if len(values) != len(sampling.logit_bias_token):
        return (
            f"sampling.logit_bias_value has {len(values)} entries; allowed: as many as logit_bias_token, "
            f"{len(sampling.logit_bias_token)}"
        )
    for index, value in enumerate(values):
        if not -MAX_LOGIT_BIAS <= value <= MAX_LOGIT_BIAS:
            return f"sampling.logit_bias_value[{index}] is {value}; allowed: -100 to 100"
    return ""
