"""Picks the worker that a request's routing key belongs to, whoever comes or goes meanwhile.

Unlike hashing, a new worker moves no key. Also what `--routing-key-override` lays over any other policy.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick
from smg.policies.loads import idlest
from smg.policies.pins import Pins
from smg.policies.roster import PerModel

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from smg.policies.base import Policy, RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class Manual(BasePolicy):
    """Keeps the keys and their workers."""

    def __init__(
        self,
        settings: RoutingSettings,
        rng: random.Random,
        *,
        delegate: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: delegate: places requests without a key, and new keys in mode `delegate`; None for the mode's own way."""
        self._rng = rng
        self._delegate = delegate
        self._mode = settings.assignment_mode or ("delegate" if delegate else "random")
        self._pins: PerModel[Pins] = PerModel(
            lambda: Pins(
                settings.max_routing_keys, settings.max_idle_secs, settings.eviction_interval_secs, clock
            )
        )

    @property
    def delegate(self) -> Policy | None:
        """Who places requests without a key."""
        return self._delegate

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the key's worker; without a key any that the mode allows."""
        if request.routing_key:
            pins = self._pins[request.model]
            return pins.place(
                snapshots, request.routing_key, partial(self._assign, snapshots, request, pins.counts)
            )
        if self._delegate is not None:
            return self._delegate.explain(snapshots, request)
        return self._assign(snapshots, request, {})

    def _assign(
        self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest, counts: dict[str, int]
    ) -> Pick:
        if self._mode == "delegate" and self._delegate is not None:
            return self._delegate.explain(snapshots, request)
        if self._mode == "random":
            return Pick(self._rng.choice(snapshots), "one of {} by chance", (len(snapshots),))
        if self._mode == "min_group" and counts:
            keys = [counts.get(snapshot.id, 0) for snapshot in snapshots]
            fewest = min(keys)
            least = [snapshot for snapshot, count in zip(snapshots, keys, strict=True) if count == fewest]
            return Pick(self._rng.choice(least), "fewest keys: {}", (fewest,))
        worker = idlest(snapshots, self._rng)
        return Pick(worker, "least busy: saturation {:.2f}", (worker.saturation,))
