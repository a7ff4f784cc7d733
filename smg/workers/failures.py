"""The errors that a worker makes of what happens on its connection."""

from __future__ import annotations

from smg.errors import DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE, EngineError

# Codes after which another worker, or the same one later, may succeed.
RETRYABLE_CODES = frozenset((UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED))


def lost_error() -> EngineError:
    """The error of every sequence that a lost worker leaves behind.

    Clients read it, so that it names no address; which worker it was, and why, is logged where it is noticed.
    """
    return EngineError("the worker was lost", engine_code=UNAVAILABLE, can_retry=True)
