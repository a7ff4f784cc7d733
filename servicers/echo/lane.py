"""The sequences of a session that simply take the next token at each step: one list of iterators, advanced together.

This is what makes a step cheap: its cost per sequence is one `next` in C. A sequence joins with the tokens that need
no look at it, and leaves when they are used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from servicers.echo.sequence import EchoSequence


class FastLane:
    """Columns of sequences, in step with each other."""

    __slots__ = ("numbers", "tick", "_sources", "_runs", "_places", "_ends")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        """The sequences. Changes only in `join` and `leave`."""
        self.tick = 0
        """Steps so far."""
        self._sources: list[Iterator[int]] = []
        self._runs: list[EchoSequence] = []
        self._places: dict[int, int] = {}
        # By the tick at which their tokens are used up; dicts, because they keep their order.
        self._ends: dict[int, dict[EchoSequence, None]] = {}

    def step(self) -> list[int]:
        """The next token of every sequence, in the order of `numbers`. Nobody's tokens may be used up."""
        self.tick += 1
        return list(map(next, self._sources))

    def join(self, run: EchoSequence, tokens: Sequence[int]) -> None:
        """Add a sequence with its next tokens; at least one."""
        self._places[run.number] = len(self.numbers)
        self.numbers.append(run.number)
        self._sources.append(iter(tokens))
        self._runs.append(run)
        run.enter_lane(self, self.tick + len(tokens))
        self._ends.setdefault(run.lane_end, {})[run] = None

    def leave(self, run: EchoSequence) -> None:
        """Take a sequence out; the last one takes its place."""
        place = self._places.pop(run.number)
        last = self._runs.pop()
        number, source = self.numbers.pop(), self._sources.pop()
        if last is not run:
            self._runs[place], self.numbers[place], self._sources[place] = last, number, source
            self._places[number] = place
        ends = self._ends[run.lane_end]
        del ends[run]
        if not ends:
            del self._ends[run.lane_end]
        run.leave_lane()

    def used_up(self) -> list[EchoSequence]:
        """The sequences whose tokens are used up."""
        return list(self._ends.get(self.tick, ()))
