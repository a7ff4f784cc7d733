"""Rules that chat and text completions share: stop sequences, bias, constraints, token bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.validation.rules import LOGIT_BIAS

if TYPE_CHECKING:
    from smg_proto.chat.v1 import options_pb2

MAX_STOP_SEQUENCES = 4
MAX_TOKEN_ID = 2**32 - 1
Fault = tuple[str, str]


def sampling_faults(sampling: options_pb2.SamplingOptions) -> list[Fault]:
    """Cross-field and list rules of the sampling options; ranges are checked apart."""
    faults = [*_stop_faults(sampling), *_bias_faults(sampling)]
    limit = max_tokens(sampling)
    if limit is not None and sampling.min_tokens > limit:
        faults.append(
            ("min_tokens", f"min_tokens is {sampling.min_tokens}, more than max_completion_tokens ({limit})")
        )
    if sampling.regex and sampling.ebnf:
        faults.append(("regex", "regex and ebnf are both set; only one constraint is allowed"))
    return faults


def max_tokens(sampling: options_pb2.SamplingOptions) -> int | None:
    """The bound on output tokens that applies: max_completion_tokens, else max_tokens, else None."""
    if sampling.HasField("max_completion_tokens"):
        return sampling.max_completion_tokens
    return sampling.max_tokens if sampling.HasField("max_tokens") else None


def _stop_faults(sampling: options_pb2.SamplingOptions) -> list[Fault]:
    stops = sampling.stop
    if not stops:
        return []
    if len(stops) > MAX_STOP_SEQUENCES:
        return [("stop", f"stop has {len(stops)} sequences; at most {MAX_STOP_SEQUENCES} are allowed")]
    if "" in stops:
        return [("stop", "stop has an empty sequence; each must have at least one character")]
    return []


def _bias_faults(sampling: options_pb2.SamplingOptions) -> list[Fault]:
    faults: list[Fault] = []
    for key, value in sampling.logit_bias.items():
        if not (key.isascii() and key.isdigit() and int(key) <= MAX_TOKEN_ID):
            faults.append(("logit_bias", f"logit_bias has the key {key[:40]!r}; keys are decimal token ids"))
        elif not LOGIT_BIAS.allows(value):
            faults.append(("logit_bias", f"logit_bias[{key}] is {value:g}; allowed is {LOGIT_BIAS}"))
        if len(faults) >= 3:
            break
    return faults
