"""What one session has in work, and its part of a step."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from servicers.echo.lane import FastLane
from servicers.echo.step import StepColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servicers.echo.sequence import EchoSequence


class SessionWork:
    """Running sequences and one-shot work of a session; those that wait lie in the engine's queue."""

    __slots__ = ("one_shots", "told_load", "_running", "_lane", "_others")

    def __init__(self) -> None:
        self.one_shots: dict[int, Callable[[StepColumns], None]] = {}
        """By sequence number: computes the answer and adds it to the step."""
        self.told_load: tuple[int, int] = (0, 0)
        """Running and waiting sequences, as the router was told last."""
        self._running: dict[int, EchoSequence] = {}
        self._lane = FastLane()
        # Running sequences that are not in the lane.
        self._others: dict[int, EchoSequence] = {}

    def __iter__(self) -> Iterator[EchoSequence]:
        """The running sequences."""
        return iter(self._running.values())

    def add(self, run: EchoSequence) -> None:
        """Let a sequence run."""
        self._running[run.number] = self._others[run.number] = run

    def remove(self, number: int) -> EchoSequence | None:
        """Take a running sequence out; None when there is none of that number."""
        run = self._running.pop(number, None)
        if run is not None and self._others.pop(number, None) is None:
            self._lane.leave(run)
        return run

    def step(self, now: float) -> tuple[StepColumns, list[EchoSequence]]:
        """Advance everything by one step. Returns what it brings, and the sequences that have ended."""
        self._change_lanes()
        lane = self._lane
        columns = StepColumns(lane.numbers, lane.step())
        ended = [run for run in self._others.values() if run.advance(now, columns)]
        for run in ended:
            self.remove(run.number)
        for answer in self.one_shots.values():
            answer(columns)
        self.one_shots.clear()
        return columns, ended

    def next_due(self) -> float:
        """Earliest time at which a step can bring anything; infinite when none can."""
        if self.one_shots or self._lane.numbers:
            return 0.0
        return min((run.due for run in self._others.values()), default=inf)

    def _change_lanes(self) -> None:
        lane, others = self._lane, self._others
        for run in lane.used_up():
            lane.leave(run)
            others[run.number] = run
        joining = [(run, tokens) for run in others.values() if (tokens := run.stretch())]
        for run, tokens in joining:
            del others[run.number]
            lane.join(run, tokens)
