"""Picks the workers of a model in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot

# Positions are kept for so many models; the counts of more start over, which harms nobody.
_MAX_MODELS = 1024


class RoundRobin(BasePolicy):
    """One position per model, so that two models in turns do not starve each other's second worker."""

    def __init__(self, _settings: RoutingSettings, _rng: random.Random) -> None:
        self._positions: dict[str, int] = {}

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the next in line."""
        positions = self._positions
        if len(positions) >= _MAX_MODELS and request.model not in positions:
            positions.clear()
        turn = positions.get(request.model, 0)
        positions[request.model] = turn + 1
        return Pick(snapshots[turn % len(snapshots)], "turn {}", (turn,))
