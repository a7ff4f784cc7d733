"""Picks the first worker, always: for a router in front of one, where there is nothing to choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class Passthrough(BasePolicy):
    """Keeps no state. Others than the first get work only while it is not ready."""

    def __init__(self, _settings: RoutingSettings, _rng: random.Random) -> None:
        pass

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:  # noqa: ARG002 - the contract's signature
        """Pick the first."""
        return Pick(snapshots[0], "the first of {}", (len(snapshots),))
