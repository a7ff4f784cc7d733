"""Rules that chat and text completions share: stop sequences, bias, constraints, token bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from smg.types.context import MAX_ID_LENGTH, is_visible_ascii
from smg.validation.texts import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.validation.texts import Fault

MAX_STOP_SEQUENCES = 4
MAX_TOKEN_ID = 2**32 - 1
MAX_ID_DIGITS = 10
MAX_LISTED_IDS = 4096
# A few examples help; a thousand do not.
MAX_BIAS_FAULTS = 3
# A stop sequence is looked for at every piece of text; a grammar is compiled before the first.
MAX_STOP_CHARS = 4096
MAX_CONSTRAINT_CHARS = 1 << 16
MAX_LORA_CHARS = 1024


def sampling_faults(fields: Mapping[str, Any]) -> list[Fault]:
    """Cross-field and list rules of the sampling options that are set; ranges are checked apart."""
    faults: list[Fault] = []
    if "stop" in fields:
        faults += _stop_faults(fields["stop"])
    for name in ("logit_bias", "stop_token_ids"):
        if len(fields.get(name, ())) > MAX_LISTED_IDS:
            faults.append((name, f"{name} has {len(fields[name])} ids; at most {MAX_LISTED_IDS} are allowed"))
    if not faults and "logit_bias" in fields:
        faults += _bias_faults(fields["logit_bias"])
    if "min_tokens" in fields:
        faults += _min_tokens_faults(fields)
    for name in ("regex", "ebnf"):
        if name in fields:
            faults += _length_faults(name, fields[name], 1, MAX_CONSTRAINT_CHARS)
    if "regex" in fields and "ebnf" in fields:
        faults.append(("regex", "regex and ebnf are both set; only one constraint is allowed"))
    if "lora_path" in fields:
        faults += _length_faults("lora_path", fields["lora_path"], 0, MAX_LORA_CHARS)
    return faults


def max_tokens(fields: Mapping[str, Any]) -> int | None:
    """The bound on output tokens that applies: max_completion_tokens, else max_tokens, else None."""
    return fields.get("max_completion_tokens", fields.get("max_tokens"))


def _min_tokens_faults(fields: Mapping[str, Any]) -> list[Fault]:
    limit = max_tokens(fields)
    if limit is None or fields["min_tokens"] <= limit:
        return []
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    return [("min_tokens", f"min_tokens is {fields['min_tokens']}; it must not exceed {name} ({limit})")]


def _length_faults(name: str, text: str, least: int, most: int) -> list[Fault]:
    if len(text) < least:
        return [(name, f"{name} is empty; it must have at least one character")]
    if len(text) > most:
        return [(name, f"{name} has {len(text)} characters; at most {most} are allowed")]
    return []


def _stop_faults(stops: Sequence[str]) -> list[Fault]:
    if len(stops) > MAX_STOP_SEQUENCES:
        return [("stop", f"stop has {len(stops)} sequences; at most {MAX_STOP_SEQUENCES} are allowed")]
    if "" in stops:
        return [("stop", "stop has an empty sequence; each must have at least one character")]
    longest = max(map(len, stops))
    if longest > MAX_STOP_CHARS:
        sentence = f"stop has a sequence of {longest} characters"
        return [("stop", f"{sentence}; at most {MAX_STOP_CHARS} are allowed")]
    return []


def _bias_faults(bias: Mapping[str, float]) -> list[Fault]:
    faults: list[Fault] = []
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) <= MAX_ID_DIGITS and int(key) <= MAX_TOKEN_ID):
            faults.append(("logit_bias", f"logit_bias has the key {shown(key)}; keys are decimal token ids"))
        elif not math.isfinite(value):
            faults.append(("logit_bias", f"logit_bias[{key}] is {value:g}; it must be a finite number"))
        if len(faults) >= MAX_BIAS_FAULTS:
            break
    return faults


def rid_faults(rid: str) -> list[Fault]:
    """A request id is repeated in every chunk and stands in logs: short, and visible ASCII only."""
    if len(rid) > MAX_ID_LENGTH:
        return [("rid", f"rid has {len(rid)} characters; at most {MAX_ID_LENGTH} are allowed")]
    if not is_visible_ascii(rid):
        return [("rid", "rid has other characters than visible ASCII; only those are allowed")]
    return []
