"""Picks a worker by a hash of a prompt's first tokens, unless that worker is overloaded.

Prompts that begin alike meet their cache, at the cost of one hash and without memory. An overloaded worker passes work
on, always to the same substitutes (Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick
from smg.policies.blocks import TOKEN_BYTES
from smg.policies.loads import busiest_allowed, busy, idlest, sample
from smg.policies.ring import Ring
from smg.policies.roster import PerModel

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot


class PrefixHash(BasePolicy):
    """Keeps the workers' points on the ring."""

    def __init__(self, settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng
        self._prefix_bytes = settings.prefix_token_count * TOKEN_BYTES
        self._factor = settings.prefix_hash_load_factor
        self._margin = settings.prefix_hash_balance_abs_threshold
        self._rings: PerModel[Ring] = PerModel(Ring)

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the worker of the routing key, else of the first tokens."""
        key = request.routing_key.encode() or request.leading_ids[: self._prefix_bytes]
        if not key:
            worker = idlest(snapshots, self._rng)
            return Pick(worker, "no tokens to hash: least busy, saturation {:.2f}", (worker.saturation,))
        ring = self._rings[request.model]
        worker = ring.place(snapshots, key)
        seen = sample(snapshots, self._rng)
        most = busiest_allowed(seen, self._factor, self._margin)
        if busy(worker) <= most:
            return Pick(worker, "hash of {}", ("the routing key" if request.routing_key else "the prefix",))
        for substitute in ring.substitutes(snapshots, key):
            if busy(substitute) <= most:
                return Pick(substitute, "substitute for {}, which has {} requests", (worker.id, busy(worker)))
        calm = idlest(seen, self._rng)
        return Pick(calm, "least busy: {} and its substitutes are overloaded", (worker.id,))
