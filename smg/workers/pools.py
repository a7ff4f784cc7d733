"""Turns the list of workers into what a placement reads: per model the ready ones, as pictures, always in one order."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from smg.types.worker import WorkerSnapshot
    from smg.workers.overload import OverloadLimits
    from smg.workers.registered import RegisteredWorker
    from smg_proto.engine.v1 import card_pb2


class _Pool:
    """The ready workers of one model."""

    def __init__(self) -> None:
        self.positions: dict[RegisteredWorker, int] = {}
        self.pictures: list[WorkerSnapshot] = []
        self.frozen: tuple[WorkerSnapshot, ...] | None = None
        self.over: set[int] = set()
        self.below: tuple[WorkerSnapshot, ...] | None = None

    def set_over(self, position: int, *, is_over: bool) -> None:
        """The worker at a position has too much work, or has not."""
        if is_over:
            self.over.add(position)
        else:
            self.over.discard(position)
        self.below = None


class Pools:
    """Per model: who serves it, its card, and the pictures of the ready workers.

    Attributes:
        models: every model and the workers that serve it, lost ones included.
        cards: every model's card, a ready worker's before a lost one's.
        has_ready: some worker is ready for some model.
    """

    def __init__(self, overload: OverloadLimits) -> None:
        self._overload = overload
        self.models: Mapping[str, tuple[RegisteredWorker, ...]] = MappingProxyType({})
        self.cards: Mapping[str, card_pb2.ModelCard] = MappingProxyType({})
        self._pools: dict[str, _Pool] = {}
        self._stale: set[RegisteredWorker] = set()

    @property
    def has_ready(self) -> bool:
        """Some worker is ready for some model."""
        return bool(self._pools)

    def rebuild(self, workers: Iterable[RegisteredWorker]) -> None:
        """Start over: a worker came, went, or changed its state or models."""
        serving: dict[str, list[RegisteredWorker]] = {}
        cards: dict[str, card_pb2.ModelCard] = {}
        pools: dict[str, _Pool] = {}
        for worker in workers:
            description = worker.description
            if description is None:
                continue
            picture = worker.snapshot()
            for card in description.models:
                serving.setdefault(card.id, []).append(worker)
                cards.setdefault(card.id, card)
                if worker.is_ready:
                    pool = pools.setdefault(card.id, _Pool())
                    if not pool.pictures:
                        cards[card.id] = card
                    pool.positions[worker] = len(pool.pictures)
                    pool.set_over(len(pool.pictures), is_over=self._overload.is_over(worker.load))
                    pool.pictures.append(picture)
        self.models = MappingProxyType({model: tuple(entries) for model, entries in serving.items()})
        self.cards = MappingProxyType(cards)
        self._pools = pools
        self._stale.clear()

    def mark_stale(self, worker: RegisteredWorker) -> None:
        """A worker's load has changed. Costs next to nothing: it happens with every step of every engine."""
        self._stale.add(worker)

    def snapshots(self, model: str) -> tuple[WorkerSnapshot, ...]:
        """Pictures of the workers that are ready for a model; empty when there are none."""
        if self._stale:
            self._refresh()
        pool = self._pools.get(model)
        if pool is None:
            return ()
        if pool.frozen is None:
            pool.frozen = tuple(pool.pictures)
        return pool.frozen

    def placeable(self, model: str) -> tuple[tuple[WorkerSnapshot, ...], bool]:
        """The ready workers that new work may go to: those that have not too much of it, or all if all have.

        Returns: their pictures, and whether all have too much.
        """
        snapshots = self.snapshots(model)
        pool = self._pools.get(model)
        if pool is None or not pool.over:
            return snapshots, False
        if len(pool.over) == len(snapshots):
            return snapshots, True
        if pool.below is None:
            pool.below = tuple([picture for place, picture in enumerate(snapshots) if place not in pool.over])
        return pool.below, False

    def _refresh(self) -> None:
        """Take new pictures of the workers whose load has changed."""
        for worker in self._stale:
            picture = None
            for pool in self._pools.values():
                position = pool.positions.get(worker)
                if position is not None:
                    picture = picture or worker.snapshot()
                    pool.pictures[position] = picture
                    pool.set_over(position, is_over=self._overload.is_over(worker.load))
                    pool.frozen = None
        self._stale.clear()
