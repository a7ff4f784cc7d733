"""Picks a worker by a hash of who asks: the routing key, else the caller, else the prompt's first tokens.

A worker that comes or goes moves only the keys that it gains or loses. The only policy that honors X-SMG-Target-Worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import WorkerUnavailable
from smg.policies.base import BasePolicy, Pick
from smg.policies.blocks import TOKEN_BYTES
from smg.policies.loads import busiest_allowed, busy, sample
from smg.policies.ring import Ring
from smg.policies.roster import PerModel

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class ConsistentHashing(BasePolicy):
    """Keeps the workers' points on the ring."""

    def __init__(self, settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng
        self._prefix_bytes = settings.prefix_token_count * TOKEN_BYTES
        self._factor = settings.consistent_hashing_load_factor
        self._rings: PerModel[Ring] = PerModel(Ring)

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the worker that the caller insists on, else that of its key, else any."""
        target = request.target_worker
        if target is not None:
            if not 0 <= target < len(snapshots):
                raise WorkerUnavailable(
                    f"x-smg-target-worker names no ready worker of model {request.model!r};"
                    f" there are 0 to {len(snapshots) - 1}"
                )
            return Pick(snapshots[target], "the caller asked for number {}", (target,))
        key, what = self._key(request)
        if not key:
            return Pick(
                self._rng.choice(snapshots), "nothing to hash: one of {} by chance", (len(snapshots),)
            )
        ring = self._rings[request.model]
        worker = ring.place(snapshots, key)
        if self._factor is None:
            return Pick(worker, "hash of {}", (what,))
        most = busiest_allowed(sample(snapshots, self._rng), self._factor, 0)
        if busy(worker) <= most:
            return Pick(worker, "hash of {}", (what,))
        substitute = min(ring.substitutes(snapshots, key), key=lambda each: busy(each) > most, default=worker)
        return Pick(substitute, "substitute for {}, which has {} requests", (worker.id, busy(worker)))

    def _key(self, request: RouteRequest) -> tuple[bytes, str]:
        # The first byte keeps a caller from being taken for the routing key of the same name.
        if request.routing_key:
            return b"k" + request.routing_key.encode(), "the routing key"
        if request.caller:
            return b"c" + request.caller.encode(), "the caller"
        prefix = request.leading_ids[: self._prefix_bytes]
        return (b"p" + prefix, "the prefix") if prefix else (b"", "")
