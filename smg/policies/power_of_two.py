"""Picks the less busy of two workers drawn by chance.

Nearly as even as asking all of them, at the cost of two look-ups, and without the herd that runs to the one least
loaded worker when loads are known late (Mitzenmacher, "The power of two choices in randomized load balancing").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.types.worker import WorkerSnapshot


class PowerOfTwo:
    """Keeps no state but the generator it was given."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:  # noqa: ARG002 - the contract's signature
        """Draw two different ones, and pick the one with the lower saturation, then with fewer requests."""
        if len(snapshots) == 1:
            return snapshots[0]
        one, other = self._rng.sample(range(len(snapshots)), 2)
        first, second = snapshots[one], snapshots[other]
        if (second.saturation, second.inflight_requests) < (first.saturation, first.inflight_requests):
            return second
        return first
