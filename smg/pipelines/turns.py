"""Shares the event loop among long pieces of work: each runs a little at a time, and in between everybody else runs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What all of them together may cost in one iteration of the event loop. A cost is a microsecond, about.
TURN_COST = 1000
LEAVES = -1


class Turns:
    """Work is an iterator: each step does a little, yields what that cost, and must not raise.

    Work that yields LEAVES has to wait for something, and is added again by whoever knows that it has come.

    Attributes:
        turns: iterations of the loop in which something was done.
    """

    def __init__(self) -> None:
        self._waiting: deque[Iterator[int]] = deque()
        self._left = TURN_COST
        self._is_scheduled = False
        self._is_running = False
        self.turns = 0

    def add(self, work: Iterator[int], *, at_once: bool = True) -> None:
        """Take work.

        Args:
            work: see the class.
            at_once: begin before this returns, if there is something left of this iteration.
        """
        self._waiting.append(work)
        if at_once and len(self._waiting) == 1 and not self._is_running:
            self._run()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._left = TURN_COST
        if self._waiting:
            self._schedule()
            self._run()

    def _run(self) -> None:
        self.turns += 1
        self._is_running = True
        try:
            while self._waiting and self._left > 0:
                work = self._waiting.popleft()
                cost = next(work, LEAVES)
                if cost != LEAVES:
                    self._left -= cost
                    self._waiting.append(work)
        finally:
            self._is_running = False
