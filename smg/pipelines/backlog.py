"""Writes what takes long of one choice, in order and a little at a time; what comes meanwhile waits behind it.

A client that streams gets as much as it reads: a prompt's log-probabilities are there all at once, and many times the
size of what may be held back for a slow one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from smg.pipelines.turns import LEAVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smg.pipelines.turns import Turns

# Longest wait for a client that reads nothing, and most steps that wait with it. Then everything is written, and the
# bound on what is held back for slow readers decides.
PATIENCE_S = 30.0
MAX_WAITING = 4096


class Writer(Protocol):
    """Whose backlog it is.

    Attributes:
        is_abandoned: nothing is to be written any more.
    """

    is_abandoned: bool

    def client_is_behind(self, go_on: Callable[[], None]) -> bool:
        """Nothing should be written now; if so, go_on is called when that may have changed."""
        ...

    def caught_up(self) -> None:
        """Nothing is left."""
        ...

    def broke(self, error: Exception) -> None:
        """A piece of work raised; the rest is dropped."""
        ...


class Backlog:
    """What is still to be written of one choice."""

    __slots__ = ("_is_parked", "_is_patient", "_run", "_timer", "_turns", "_works")

    def __init__(self, turns: Turns) -> None:
        """Args: turns gives the time."""
        self._turns = turns
        self._works: deque[Iterator[int]] = deque()
        self._run: Iterator[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_patient = True
        self._is_parked = False

    def add(self, writer: Writer, work: Iterator[int]) -> None:
        """Write something more: what is short, and not behind anything, before this returns.

        Args:
            writer: always the same.
            work: each step writes a little and yields what that cost, or LEAVES until go_on is called (Turns).
        """
        self._works.append(work)
        if self._run is None:
            self._run = self._steps(writer)
            self._turns.add(self._run)
        elif len(self._works) > MAX_WAITING:
            self._hurry()

    def go_on(self) -> None:
        """What was waited for may have come."""
        if self._is_parked and self._run is not None:
            self._is_parked = False
            self._turns.add(self._run, at_once=False)

    def _steps(self, writer: Writer) -> Iterator[int]:
        while self._works and not writer.is_abandoned:
            if self._is_patient and writer.client_is_behind(self.go_on):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._hurry)
                self._is_parked = True
                yield LEAVES
                continue
            self._stop_timer()
            try:
                cost = next(self._works[0], None)
            except Exception as error:  # noqa: BLE001 - ends this request, not those that take turns with it
                writer.broke(error)
                break
            if cost is None:
                self._works.popleft()
            else:
                self._is_parked = cost == LEAVES
                yield cost
        self._stop_timer()
        self._works.clear()
        self._run = None
        writer.caught_up()

    def _hurry(self) -> None:
        self._is_patient = False
        if self._timer is not None:
            self.go_on()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
