"""Picks the worker where the most of a prompt is cached, as far as that is worth a longer queue.

One score decides: the square of the share of the prompt that a worker has cached, less its load in units of the
allowance: the load that a wholly cached prompt is worth. The allowance is the larger one of
`balance_abs_threshold` requests, up to half of what a worker runs at a time, and `balance_rel_threshold` - 1 times the
mean load.
So a beginning that all prompts share draws them to the workers that hold it only until those are busier than others by
what it is worth; then one more worker gets it. The square keeps a short common beginning from gathering sessions that
would be better apart. benchmarks/routing shows what that gives.

What a worker has cached is known from what was sent to it; engines that tell of their caches correct that (`stored`,
`removed`, `cleared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.policies.base import BasePolicy, Pick
from smg.policies.blocks import TOKEN_BYTES, Blocks
from smg.policies.loads import SAMPLE, busy, idlest, sample, total_busy
from smg.policies.prefix_index import Holder, PrefixIndex
from smg.policies.roster import PerModel, Roster

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from smg.policies.base import RouteRequest
    from smg.policies.prefix_index import Holders
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot

# Workers that are remembered, those that left included: what is known of more is forgotten, oldest first.
_MAX_HOLDERS = 65_536
_LEAST_ALLOWANCE = 1e-6
_MOST_SATURATION = 0.5


class _Scale(NamedTuple):
    """What load means at the moment.

    Attributes:
        load: load of a worker: its saturation, or its requests while nobody knows saturations.
        mean: mean load of the workers that were looked at.
        allowance: the load that a wholly cached prompt is worth.
    """

    load: Callable[[WorkerSnapshot], float]
    mean: float
    allowance: float


class CacheAware(BasePolicy):
    """Keeps the index of prefixes and their holders."""

    def __init__(self, settings: RoutingSettings, rng: random.Random) -> None:
        self._rng = rng
        self._least_share = settings.cache_threshold
        self._abs_threshold = settings.balance_abs_threshold
        self._rel_threshold = settings.balance_rel_threshold
        self._blocks = Blocks(settings.block_size)
        self._index = PrefixIndex(settings.max_tree_size // settings.block_size)
        self._holders: dict[str, Holder] = {}
        self._rosters: PerModel[Roster] = PerModel(Roster)

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the best by score, and remember that it has the prompt from now on."""
        ids = request.leading_ids
        keys = self._blocks.keys(request.model, ids)
        seen = sample(snapshots, self._rng)
        size = len(ids) // TOKEN_BYTES
        worker = idlest(seen, self._rng)
        scale = self._scale(seen, worker)
        best = self._best(snapshots, request.model, keys, size, seen, worker, scale)
        share = 0.0
        if best is not None:
            worker, share = best
        if keys:
            self._index.add(keys, self._holder(worker.id, worker.instance_id))
        if not share:
            return Pick(
                worker, "least busy, prompt not cached where it matters: load {:.2f}", (scale.load(worker),)
            )
        return Pick(
            worker,
            "{:.0%} of the prompt cached, load {:.2f}, mean {:.2f}",
            (share, scale.load(worker), scale.mean),
        )

    def keys(self, model: str, ids: bytes) -> list[int]:
        """The keys under which a prompt's prefixes are known, shortest first; those of this process alone."""
        return self._blocks.keys(model, ids)

    def stored(self, worker_id: str, instance_id: str, keys: Sequence[int]) -> None:
        """A worker tells that it has cached these prefixes, given shortest first."""
        self._index.add(keys, self._holder(worker_id, instance_id))

    def stored_ids(self, worker_id: str, instance_id: str, model: str, ids: bytes) -> None:
        """A worker tells that it has cached a prefix, given by its packed token ids."""
        self.stored(worker_id, instance_id, self.keys(model, ids))

    def removed_ids(self, worker_id: str, model: str, ids: bytes, kept_tokens: int) -> None:
        """A worker tells that a prefix is no longer in its cache, but for its first tokens."""
        self.removed(worker_id, self.keys(model, ids)[self._blocks.whole(kept_tokens) :])

    def removed(self, worker_id: str, keys: Sequence[int]) -> None:
        """A worker tells that these prefixes are no longer in its cache."""
        holder = self._holders.get(worker_id)
        if holder is not None:
            self._index.remove(keys, holder)

    def cleared(self, worker_id: str) -> None:
        """A worker has lost its whole cache, or is gone for good."""
        holder = self._holders.pop(worker_id, None)
        if holder is not None:
            holder.is_current = False

    def _scale(self, seen: Sequence[WorkerSnapshot], worker: WorkerSnapshot) -> _Scale:
        """What load means among these workers."""
        total, one, load = sum([snapshot.saturation for snapshot in seen]), 1.0, _saturation
        if not total:
            total, load = total_busy(seen), busy
        elif worker.slots:
            one = 1 / worker.slots
        else:
            one = total / (total_busy(seen) or len(seen))
        mean = total / len(seen)
        allowance = self._abs_threshold * one
        if worker.slots:
            # No prompt is worth waiting for a place while other workers have some.
            allowance = min(allowance, _MOST_SATURATION)
        # Not zero, also for a prompt without tokens among idle workers.
        return _Scale(load, mean, max(allowance, (self._rel_threshold - 1) * mean, _LEAST_ALLOWANCE))

    def _best(
        self,
        snapshots: Sequence[WorkerSnapshot],
        model: str,
        keys: Sequence[int],
        size: int,
        seen: Sequence[WorkerSnapshot],
        idle: WorkerSnapshot,
        scale: _Scale,
    ) -> tuple[WorkerSnapshot, float] | None:
        """The holder of some of a prompt that is better than an idle worker without it, and its share.

        Longer shares come first, and the search ends where a shorter one could not be better even on an idle worker.
        Of very many holders, as of what all prompts begin with, those are looked at that are in the sample.

        Args:
            snapshots: all workers.
            model: theirs.
            keys: of the prompt.
            size: its length in tokens.
            seen: the sample.
            idle: the idlest of the sample.
            scale: what load means.
        """
        load, allowance, find = scale.load, scale.allowance, self._rosters[model].find
        calm = load(idle) / allowance
        best, ties, found = -calm, 1, None
        looked: set[Holder] = set()
        get, tokens_of, least, last = self._index.get, self._blocks.tokens, self._least_share * size, None
        for count in range(self._index.known(keys), 0, -1):
            tokens = tokens_of(count)
            share = tokens / size
            worth = share * share
            if tokens < least or len(looked) >= SAMPLE or worth - calm < best:
                break
            held = get(keys[count - 1])
            # Who holds a prefix holds its beginnings too: as many holders are the same holders.
            if held is None or held is last or (not isinstance(held, Holder) and len(held) <= len(looked)):
                continue
            last = held
            for holder in self._some(held, seen):
                if holder in looked or not holder.is_current:
                    continue
                looked.add(holder)
                worker = find(snapshots, holder.worker_id)
                if worker is None or worker.instance_id != holder.instance_id:
                    continue
                score = worth - load(worker) / allowance
                if score < best:
                    continue
                ties = ties + 1 if score == best else 1
                # Each of several equals is as likely as the others.
                if ties == 1 or self._rng.random() * ties < 1:
                    best, found = score, (worker, share)
        return found

    def _some(self, held: Holders, seen: Sequence[WorkerSnapshot]) -> Iterable[Holder]:
        """Holders of a prefix: all of them, or of very many those in the sample."""
        if isinstance(held, Holder):
            return (held,)
        if len(held) <= SAMPLE:
            return held
        known = map(self._holders.get, [each.id for each in seen])
        return [holder for holder in known if holder is not None and holder in held]

    def _holder(self, worker_id: str, instance_id: str) -> Holder:
        """The present life of a worker. What was known of an earlier one is forgotten."""
        holder = self._holders.get(worker_id)
        if holder is None or holder.instance_id != instance_id:
            if holder is None and len(self._holders) >= _MAX_HOLDERS:
                self.cleared(next(iter(self._holders)))
            elif holder is not None:
                holder.is_current = False
            holder = self._holders[worker_id] = Holder(worker_id, instance_id)
        return holder


def _saturation(snapshot: WorkerSnapshot) -> float:
    return snapshot.saturation
