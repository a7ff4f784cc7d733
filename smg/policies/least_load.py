"""Picks the least busy worker: the lowest saturation, then the fewest requests of ours, then any of those left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick
from smg.policies.loads import idlest

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class LeastLoad(BasePolicy):
    """Keeps no state but the generator that breaks ties: without it idle workers would all wait behind the first."""

    def __init__(self, _settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:  # noqa: ARG002 - the contract's signature
        """Pick one of the least busy."""
        worker = idlest(snapshots, self._rng)
        return Pick(
            worker,
            "least busy: saturation {:.2f}, {} requests of ours",
            (worker.saturation, worker.inflight_requests),
        )
