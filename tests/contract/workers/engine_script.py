"""What the in-test engines answer: a pure function of the prompt, the same over every protocol.

The first prompt id chooses the behaviour; the tokens follow from the whole prompt, so that crossed wires show.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

NORMAL, REFUSED, FAILS_LATE, HANGS, STOPS, BUSY, LATE_FINISH, FIRST_ENDS = range(1, 9)

STOP_ID = 7
CACHED_TOKENS = 3
HANG_AFTER = 2
FAIL_AFTER = 2
DEFAULT_LENGTH = 5


@dataclass(frozen=True)
class Script:
    """One answer: its tokens, then either a finish or a failure, or nothing more ever."""

    ids: list[int]
    finish: str = "length"
    matched: int | None = None
    failure: tuple[int, str] | None = None
    hangs: bool = False


def script(prompt: list[int], max_new_tokens: int | None, choice: int = 0) -> Script:
    length = DEFAULT_LENGTH if max_new_tokens is None else max_new_tokens
    ids = [(sum(prompt) + 31 * step + 7 * choice) % 1000 + 100 for step in range(length)]
    behaviour = prompt[0]
    if behaviour == REFUSED:
        return Script([], failure=(3, "prompt id 2 is not allowed"))
    if behaviour == BUSY:
        return Script([], failure=(8, "the queue is full"))
    if behaviour == FAILS_LATE:
        return Script(ids[:FAIL_AFTER], failure=(13, "the engine broke"))
    if behaviour == HANGS or (behaviour == FIRST_ENDS and choice):
        return Script(ids[:HANG_AFTER], hangs=True)
    if behaviour == STOPS:
        return Script([*ids[:-1], STOP_ID], finish="stop", matched=STOP_ID)
    return Script(ids)


def logprob(token: int) -> float:
    """The log-probability that the engines give a token: exact in 32 bits."""
    return -(token % 64) / 8


class Changes:
    """Lets a test wait until something is so, without polling."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def until(self, predicate) -> None:
        while not predicate():
            self._changed.clear()
            await self._changed.wait()
