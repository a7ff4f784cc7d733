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
        self._hastened: asyncio.Future[None] | None = None

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

    async def pause(self) -> None:
        """Wait before the next try, after one more failure."""
        pause_s = self.next_s()
        shortest_s = min(pause_s, self._options.backoff_min_s)
        self._hastened = asyncio.get_running_loop().create_future()
        try:
            await asyncio.sleep(shortest_s)
            if pause_s > shortest_s:
                await asyncio.wait((self._hastened,), timeout=pause_s - shortest_s)
        finally:
            self._hastened = None

    def hasten(self) -> None:
        """Somebody waits for a success: the pause under way becomes the shortest one, however many failed before."""
        if self._hastened is not None and not self._hastened.done():
            self._hastened.set_result(None)
