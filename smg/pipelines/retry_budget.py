"""Bounds retries as a share of requests, so that a fleet which fails as a whole is not asked many times as often.

Counted are the requests of the last seconds and those that run now: what runs on a worker that is lost may be tried again
at once, however long ago it began. Answers that have begun are not counted: their number of attempts bounds them.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S = 10
# So many retries in a window are always allowed: a share of few requests says nothing.
LEAST_RETRIES = 100


class RetryBudget:
    """Counts requests and retries, second by second. Plain state, for the event loop's thread."""

    def __init__(
        self,
        ratio: float,
        on_refused: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Args: ratio: most retries per request; 0 for any number; on_refused: told of each that is not allowed."""
        self._ratio = ratio
        self._on_refused = on_refused
        self._clock = clock
        self._second = int(clock())
        self._requests = [0] * WINDOW_S
        self._retries = [0] * WINDOW_S

    def began(self) -> None:
        """A request is here."""
        second = int(self._clock())
        if second != self._second:
            self._advance(second)
        self._requests[second % WINDOW_S] += 1

    def take(self, running: int) -> bool:
        """Take a retry before the first token. Returns False when none is left.

        Args: running: requests that run now.
        """
        second = int(self._clock())
        if second != self._second:
            self._advance(second)
        if self._ratio:
            allowed = max(LEAST_RETRIES, self._ratio * max(sum(self._requests), running))
            if sum(self._retries) >= allowed:
                self._on_refused()
                return False
        self._retries[second % WINDOW_S] += 1
        return True

    def _advance(self, second: int) -> None:
        """Forget what is older than the window."""
        for each in range(max(self._second + 1, second - WINDOW_S + 1), second + 1):
            self._requests[each % WINDOW_S] = self._retries[each % WINDOW_S] = 0
        self._second = second
