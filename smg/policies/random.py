"""Picks any worker, all equally likely."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.types.worker import WorkerSnapshot


class Random:
    """Keeps no state but the generator it was given."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:  # noqa: ARG002 - the contract's signature
        """Pick one by chance."""
        return self._rng.choice(snapshots)
