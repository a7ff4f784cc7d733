"""Turns a count of failures into the pause before the next try."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.workers.options import WorkerOptions


class Backoff:
    """Exponential pauses with jitter. `reset` after a success."""

    def __init__(self, options: WorkerOptions, rng: random.Random | None = None) -> None:
        self._options = options
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._failures = 0
        self._hurried = asyncio.Event()

    def reset(self) -> None:
        """Start again from the shortest pause."""
        self._failures = 0

    def next_s(self) -> float:
        """The pause after one more failure, in seconds."""
        options = self._options
        # The exponent is bounded: 2.0 ** 1024 is an OverflowError after an hour of trying.
        pause = min(options.backoff_min_s * 2.0 ** min(self._failures, 64), options.backoff_max_s)
        self._failures += 1
        return pause * (1 + options.backoff_jitter * self._rng.uniform(-1, 1))

    def hurry(self) -> None:
        """Somebody waits: end the pause that runs, once it has lasted hurried_pause_s."""
        self._hurried.set()

    async def pause(self) -> None:
        """Wait after one more failure."""
        pause_s = self.next_s()
        least_s = min(pause_s, self._options.hurried_pause_s)
        self._hurried.clear()
        await asyncio.sleep(least_s)
        if pause_s > least_s and not self._hurried.is_set():
            timer = asyncio.get_running_loop().call_later(pause_s - least_s, self._hurried.set)
            try:
                await self._hurried.wait()
            finally:
                timer.cancel()
