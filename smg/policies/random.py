"""Picks any worker, all equally likely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class Random(BasePolicy):
    """Keeps no state but the generator it was given."""

    def __init__(self, _settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:  # noqa: ARG002 - the contract's signature
        """Pick one by chance."""
        return Pick(self._rng.choice(snapshots), "one of {} by chance", (len(snapshots),))
