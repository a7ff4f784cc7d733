"""Picks the least busy worker: the lowest saturation, then the fewest requests of ours, then any of those left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.types.worker import WorkerSnapshot


class LeastLoad:
    """Keeps no state but the generator that breaks ties: without it idle workers would all wait behind the first."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:  # noqa: ARG002 - the contract's signature
        """Pick one of the least busy."""
        if len(snapshots) == 1:
            return snapshots[0]
        lowest = min([snapshot.saturation for snapshot in snapshots])
        idlest = [snapshot for snapshot in snapshots if snapshot.saturation == lowest]
        if len(idlest) == 1:
            return idlest[0]
        fewest = min([snapshot.inflight_requests for snapshot in idlest])
        equal = [snapshot for snapshot in idlest if snapshot.inflight_requests == fewest]
        return self._rng.choice(equal)
