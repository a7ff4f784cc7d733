"""Picks the less busy of two workers drawn by chance.

Nearly as even as asking all of them, at the cost of two look-ups, and without the herd that runs to the one least
loaded worker when loads are known late (Mitzenmacher, "The power of two choices in randomized load balancing").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class PowerOfTwo(BasePolicy):
    """Keeps no state but the generator it was given."""

    def __init__(self, _settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:  # noqa: ARG002 - the contract's signature
        """Draw two different ones, and pick the one with the lower saturation, then with fewer requests."""
        if len(snapshots) == 1:
            return Pick(snapshots[0], "the only worker")
        one, other = self._rng.sample(range(len(snapshots)), 2)
        better, worse = snapshots[one], snapshots[other]
        if (worse.saturation, worse.inflight_requests) < (better.saturation, better.inflight_requests):
            better, worse = worse, better
        return Pick(
            better,
            "less busy than {}: saturation {:.2f} to {:.2f}",
            (worse.id, better.saturation, worse.saturation),
        )
