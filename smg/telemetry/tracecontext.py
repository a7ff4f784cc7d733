"""Reads and writes W3C trace context: whose part of which trace a request is.

Format: W3C Trace Context, section 3.2. What does not follow it is as good as absent; it never fails a request.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLED = 1
# Versions after 00 may add fields, which are not read.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
# What the standard wants to be passed on at least.
_MAX_STATE_CHARS = 512
_MAX_PARENT_CHARS = 256


class TraceContext(NamedTuple):
    """A place in a trace.

    Attributes:
        trace_id: of the trace, 128 bits, not 0.
        span_id: of the part that asks, 64 bits, not 0.
        is_sampled: the caller records it.
    """

    trace_id: int
    span_id: int
    is_sampled: bool

    @property
    def header(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{_SAMPLED if self.is_sampled else 0:02x}"


def try_traceparent(text: str) -> TraceContext | None:
    """Read a `traceparent`; None for one that is malformed."""
    found = _TRACEPARENT.fullmatch(text) if len(text) <= _MAX_PARENT_CHARS else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id or (version == "00" and more):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def usable_traceparent(text: str) -> str:
    """The text where it is a `traceparent`, else nothing: what a client sends goes to no worker unread."""
    return text if text and try_traceparent(text) is not None else ""


def usable_tracestate(text: str) -> str:
    """A `tracestate` that may be passed on: visible, of bounded length; else nothing."""
    return text if len(text) <= _MAX_STATE_CHARS and text.isascii() and text.isprintable() else ""
