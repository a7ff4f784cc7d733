"""Picks the workers of a model in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.types.worker import WorkerSnapshot

# Positions are kept for so many models; the counts of more start over, which harms nobody.
_MAX_MODELS = 1024


class RoundRobin:
    """One position per model, so that two models in turns do not starve each other's second worker."""

    def __init__(self, _rng: random.Random) -> None:
        self._positions: dict[str, int] = {}

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:
        """Pick the next in line."""
        positions = self._positions
        if len(positions) >= _MAX_MODELS and request.model not in positions:
            positions.clear()
        position = positions.get(request.model, 0)
        positions[request.model] = position + 1
        return snapshots[position % len(snapshots)]
