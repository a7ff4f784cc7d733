"""Range rules for client numbers, as one table a message.

A rule sees only fields that are set: what a client leaves out is never wrong. All faults of a request are
reported at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class Range:
    """Closed range of a number, with two exceptions that the API has.

    Attributes:
        low: smallest allowed value.
        high: largest allowed value.
        above: `low` itself is not allowed.
        also: one value outside the range that is allowed, such as -1 for "off".
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    also: float | None = None

    def allows(self, value: float) -> bool:
        """True if the value may be sent; NaN never may."""
        if self.also is not None and value == self.also:
            return True
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low, high = _shown(self.low), _shown(self.high)
        if self.high == math.inf:
            text = f"{'above' if self.above else 'at least'} {low}"
        elif self.above:
            text = f"above {low} and at most {high}"
        else:
            text = f"from {low} to {high}"
        return text if self.also is None else f"{_shown(self.also)} or {text}"


def _shown(value: float) -> str:
    """A number in a message: whole numbers in full, so that a value past a bound differs from the bound."""
    return str(value) if isinstance(value, int) else f"{value:g}"


INT32 = Range(0, 2**31 - 1)

SAMPLING: Mapping[str, Range] = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, above=True),
    "top_k": Range(1, 2**31 - 1, also=-1),
    "min_p": Range(0, 1),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
    "repetition_penalty": Range(0, 2),
    "min_tokens": INT32,
}

CHAT: Mapping[str, Range] = {
    "n": Range(1, 10),
    "top_logprobs": Range(0, 20),
}

CHAT_SAMPLING: Mapping[str, Range] = {
    **SAMPLING,
    "max_completion_tokens": Range(1, 2**31 - 1),
    "max_tokens": Range(1, 2**31 - 1),
}

COMPLETION: Mapping[str, Range] = {
    "n": Range(1, 128),
    "best_of": Range(0, 20),
    "logprobs": Range(0, 5),
}

COMPLETION_SAMPLING: Mapping[str, Range] = {
    **SAMPLING,
    "max_tokens": INT32,
    "max_completion_tokens": INT32,
}


def set_fields(message: Message) -> dict[str, Any]:
    """The fields of a message that are set, by name. One call costs less than asking for a few fields one by one."""
    return {descriptor.name: value for descriptor, value in message.ListFields()}


def range_faults(fields: Mapping[str, Any], ranges: Mapping[str, Range]) -> list[tuple[str, str]]:
    """Check set fields against their ranges.

    Returns: one (field, sentence) for each field out of range.
    """
    faults: list[tuple[str, str]] = []
    for name, value in fields.items():
        allowed = ranges.get(name)
        if allowed is not None and not allowed.allows(value):
            faults.append((name, f"{name} is {_shown(value)}; allowed is {allowed}"))
    return faults


def raise_faults(faults: list[tuple[str, str]]) -> None:
    """Raise InvalidRequest naming every fault; return if there is none."""
    if faults:
        raise InvalidRequest("; ".join(sentence for _, sentence in faults), param=faults[0][0])
