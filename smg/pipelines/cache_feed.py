"""Tells the policy what engines tell of their prefix caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.policies.cache_aware import CacheAware
    from smg.workers.registered import RegisteredWorker
    from smg_proto.engine.v1 import card_pb2


class CacheFeed:
    """What WorkerRegistry.watch_caches calls."""

    def __init__(self, policy: CacheAware) -> None:
        self._policy = policy

    def __call__(self, worker: RegisteredWorker, changes: Iterable[card_pb2.CacheEvent]) -> None:
        """Take what one step of an engine did to its cache."""
        policy, description = self._policy, worker.description
        if description is None or not description.models:
            return
        first, instance = description.models[0].id, description.instance_id
        for change in changes:
            if change.cleared:
                policy.cleared(worker.id)
            for prefix in change.evicted_prefixes:
                policy.removed_ids(worker.id, prefix.model or first, prefix.ids, prefix.kept_tokens)
            for prefix in change.stored_prefixes:
                policy.stored_ids(worker.id, instance, prefix.model or first, prefix.ids)
