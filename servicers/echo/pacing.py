"""Decides when the next step is: on a grid of fixed times, or as soon as there is something to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Pacing:
    """Calls `step` once for each time that `wake` asks for."""

    def __init__(self, step_s: float, step: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Prepare.

        Args:
            step_s: length of the grid; 0: no grid.
            step: what to call.
            loop: where; its clock counts.
        """
        self._loop = loop
        self._step_s = step_s
        self._step = step
        self._origin = self._loop.time()
        self._index = 0
        self._when = math.inf
        self._handle: asyncio.Handle | None = None

    def wake(self, due: float) -> None:
        """Step when it is due, or earlier if an earlier step is planned already. Infinite: not at all."""
        if due == math.inf:
            return
        now = self._loop.time()
        when = self._next_on_grid(max(due, now)) if self._step_s else due
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        if when <= now:
            self._handle = self._loop.call_soon(self._fire)
        else:
            self._handle = self._loop.call_at(when, self._fire)

    def stop(self) -> None:
        """Plan nothing any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _next_on_grid(self, time: float) -> float:
        # A timer may fire a little early: without the count, the same point of the grid would come twice.
        index = max(self._index + 1, math.ceil((time - self._origin) / self._step_s))
        return self._origin + index * self._step_s

    def _fire(self) -> None:
        if self._step_s:
            self._index = max(self._index + 1, round((self._when - self._origin) / self._step_s))
        self._handle, self._when = None, math.inf
        self._step()
