"""Picks the worker where the most of a prompt is cached, as far as that is worth a longer queue.

One score decides: the square of the share of the prompt that a worker has cached, less its load over the mean in units
of the allowance: the load that a wholly cached prompt is worth. The allowance is the larger one of
`balance_abs_threshold` requests and `balance_rel_threshold` - 1 times the mean. So a beginning that all prompts share
draws them to the workers that hold it only until those are busier than others by what it is worth; then one more worker
gets it. The square keeps a short common beginning from gathering sessions that would be better apart.

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
    from collections.abc import Callable, Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot

# Workers that are remembered, those that left included: what is known of more is forgotten, oldest first.
_MAX_HOLDERS = 65_536


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

    def score(self, worker: WorkerSnapshot, share: float) -> float:
        """How good a worker is that has a share of the prompt."""
        return share * share - (self.load(worker) - self.mean) / self.allowance


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
        scale = self._scale(seen)
        worker, share = idlest(seen, self._rng), 0.0
        best, ties = scale.score(worker, 0.0), 1
        find = self._rosters[request.model].find
        for holder, cached in self._cached(keys, len(ids) // TOKEN_BYTES, seen, scale.load).items():
            candidate = find(snapshots, holder.worker_id)
            if candidate is None or candidate.instance_id != holder.instance_id:
                continue
            its_share = cached * TOKEN_BYTES / len(ids)
            score = scale.score(candidate, its_share)
            if score < best:
                continue
            ties = ties + 1 if score == best else 1
            # Each of several equals is as likely as the others.
            if ties == 1 or self._rng.random() * ties < 1:
                worker, share, best = candidate, its_share, score
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

    def _scale(self, seen: Sequence[WorkerSnapshot]) -> _Scale:
        requests = total_busy(seen)
        saturations = sum([snapshot.saturation for snapshot in seen])
        total, one, load = (
            (saturations, saturations / (requests or len(seen)), _saturation)
            if saturations
            else (requests, 1.0, busy)
        )
        mean = total / len(seen)
        return _Scale(load, mean, max(self._abs_threshold * one, (self._rel_threshold - 1) * mean))

    def _cached(
        self,
        keys: Sequence[int],
        size: int,
        seen: Sequence[WorkerSnapshot],
        load: Callable[[WorkerSnapshot], float],
    ) -> dict[Holder, int]:
        """The workers that hold enough of a prompt to matter, and how many of its tokens.

        Of very many, as hold what all prompts begin with, only the best is named.
        """
        found: dict[Holder, int] = {}
        least, last = self._least_share * size, None
        for count in range(self._index.known(keys), 0, -1):
            tokens = self._blocks.tokens(count)
            held = self._index.get(keys[count - 1])
            if tokens < least or len(found) >= SAMPLE:
                break
            if held is None or held is last:
                continue
            last = held
            if isinstance(held, Holder):
                if held.is_current:
                    found.setdefault(held, tokens)
            elif len(held) > SAMPLE:
                # They have the same share of it: of those that were looked at, the idlest is the best.
                holding = [each for each in seen if self._holders.get(each.id) in held]
                if holding:
                    found.setdefault(self._holders[min(holding, key=load).id], tokens)
                break
            # Who holds a prefix holds its beginnings too: as many holders are the same holders.
            elif len(held) > len(found):
                for holder in held:
                    if holder.is_current:
                        found.setdefault(holder, tokens)
        return found

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
