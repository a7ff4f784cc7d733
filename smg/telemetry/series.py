"""Counts and distributions that cost a fraction of a microsecond to write.

prometheus-client's own objects take a lock per write (measured here: 0.5 us per increment, 1.1 us per observation,
2.3 us with labels looked up), which a request would pay a dozen times. These are written by the event loop alone,
so they need no lock, and become prometheus families when somebody reads them. A reader in another thread may see
a count that is one request ahead of its sum.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Distribution:
    """Observations, counted by upper bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start empty.

        Args:
            bounds: upper bounds of the buckets, inclusive, ascending; one without bound is added.
        """
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Bound and cumulative count of every bucket, as the exposition format has them."""
        names = [*(f"{float(bound)}" for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))

    @property
    def sum(self) -> float:
        """Sum of all values."""
        return self._sum


class RequestSeries:
    """What is counted for one route and model."""

    __slots__ = (
        "cached_tokens",
        "completion_tokens",
        "duration",
        "failovers",
        "inflight",
        "inter_token",
        "outcomes",
        "prompt_tokens",
        "queue_wait",
        "time_to_first_token",
        "tokenize",
    )

    def __init__(self, duration_bounds: Sequence[float], token_bounds: Sequence[float]) -> None:
        """Start at zero, with the bucket bounds of durations and of times between tokens, in seconds."""
        self.inflight = 0
        self.outcomes: dict[str, int] = {}
        self.duration = Distribution(duration_bounds)
        self.time_to_first_token = Distribution(duration_bounds)
        self.inter_token = Distribution(token_bounds)
        self.queue_wait = Distribution(duration_bounds)
        self.tokenize = Distribution(token_bounds)
        self.failovers = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
