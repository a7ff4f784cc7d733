"""Writes the values of Server-Timing headers: what took how long, in milliseconds. Format: W3C Server Timing.

Numbers are put together from whole microseconds: to format as many floats takes three times as long, and every
request pays for it.
"""

from __future__ import annotations

_BEGUN = b"queue;dur=%d.%b, parse;dur=%d.%b, tokenize;dur=%d.%b, first_token;dur=%d.%b"
_WHOLE = _BEGUN + b", decode;dur=%d.%b, total;dur=%d.%b"
_THOUSANDTHS = tuple(b"%03d" % number for number in range(1000))
_NAMES = (b"queue", b"parse", b"tokenize")


def timing_of_stream(arrived_at: float, admitted_at: float, parsed_at: float, prompted_at: float) -> bytes:
    """The phases that are over of a request whose first token is not here. Args: seconds; 0 where not reached."""
    parts: list[bytes] = []
    start = arrived_at
    for name, end in zip(_NAMES, (admitted_at, parsed_at, prompted_at), strict=True):
        if not end:
            break
        parts.append(b"%b;dur=%.3f" % (name, (end - start) * 1e3))
        start = end
    return b", ".join(parts)


def timing_of_error(
    arrived_at: float, admitted_at: float, parsed_at: float, prompted_at: float, ended_at: float
) -> bytes:
    """The phases that are over of a request that ended without an answer. Args: seconds; 0 where not reached."""
    phases = timing_of_stream(arrived_at, admitted_at, parsed_at, prompted_at)
    total = b"total;dur=%.3f" % ((ended_at - arrived_at) * 1e3)
    return b"%b, %b" % (phases, total) if phases else total


def timing_of_answer(
    arrived_at: float,
    admitted_at: float,
    parsed_at: float,
    prompted_at: float,
    opened_at: float,
    ended_at: float,
) -> bytes:
    """The phases of a request whose first token is here. Args: seconds; ended_at is 0 if more is to come."""
    thousandths = _THOUSANDTHS
    queue = int((admitted_at - arrived_at) * 1e6)
    parse = int((parsed_at - admitted_at) * 1e6)
    tokenize = int((prompted_at - parsed_at) * 1e6)
    first = int((opened_at - prompted_at) * 1e6)
    begun = (
        queue // 1000, thousandths[queue % 1000], parse // 1000, thousandths[parse % 1000],
        tokenize // 1000, thousandths[tokenize % 1000], first // 1000, thousandths[first % 1000],
    )  # fmt: skip
    if not ended_at:
        return _BEGUN % begun
    decode, total = int((ended_at - opened_at) * 1e6), int((ended_at - arrived_at) * 1e6)
    return _WHOLE % (
        *begun, decode // 1000, thousandths[decode % 1000], total // 1000, thousandths[total % 1000]
    )  # fmt: skip
