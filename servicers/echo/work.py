"""What one session has in work, and its part of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servicers.echo.step import StepColumns

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.echo.sequence import EchoSequence


class SessionWork:
    """Running sequences and one-shot work of a session; those that wait lie in the engine's queue."""

    __slots__ = ("running", "one_shots", "told_load")

    def __init__(self) -> None:
        self.running: dict[int, EchoSequence] = {}
        self.one_shots: dict[int, Callable[[StepColumns], None]] = {}
        """By sequence number: computes the answer and adds it to the step."""
        self.told_load: Any = None

    def step(self, now: float) -> tuple[StepColumns, list[EchoSequence]]:
        """Advance everything by one step. Returns what it brings, and the sequences that have ended."""
        numbers: list[int] = []
        tokens: list[int] = []
        others: list[EchoSequence] = []
        for number, run in self.running.items():
            at = run.at
            if at < run.fast_until:
                numbers.append(number)
                tokens.append(run.ids[at])
                run.at = at + 1
            else:
                others.append(run)
        columns = StepColumns(numbers, tokens)
        ended = [run for run in others if run.advance(now, columns)]
        for run in ended:
            del self.running[run.number]
        for answer in self.one_shots.values():
            answer(columns)
        self.one_shots.clear()
        return columns, ended

    def next_due(self) -> float:
        """Earliest time at which a step can bring anything; infinite when none can."""
        if self.one_shots:
            return 0.0
        return min((run.due for run in self.running.values()), default=float("inf"))
