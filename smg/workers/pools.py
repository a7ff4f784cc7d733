"""Turns the list of workers into what a placement reads: per model the ready ones, as pictures, always in one order.

Token ids mean something to one tokenizer alone. Where workers of a model announce different ones, as while a new version
is rolled out, those of the majority are used and the others are left out, until they are the majority.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from smg.types.worker import WorkerSnapshot
    from smg.workers.overload import OverloadLimits
    from smg.workers.registered import RegisteredWorker
    from smg_proto.engine.v1 import card_pb2

OTHER_TOKENIZER = "its tokenizer for {} is not that of most of the model's workers"


class _Pool:
    """The available workers of one model."""

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer = tokenizer
        # Where a worker's pictures begin.
        self.positions: dict[RegisteredWorker, int] = {}
        self.pictures: list[WorkerSnapshot] = []
        self.frozen: tuple[WorkerSnapshot, ...] | None = None
        self.over: set[int] = set()
        self.below: tuple[WorkerSnapshot, ...] | None = None

    def set_over(self, places: Iterable[int], *, is_over: bool) -> None:
        """The worker whose pictures are there has too much work, or has not."""
        if is_over:
            self.over.update(places)
        elif self.over:
            self.over.difference_update(places)
        self.below = None


class Pools:
    """Per model: who serves it, its card, and the pictures of the available workers."""

    def __init__(self, workers: Callable[[], Iterable[RegisteredWorker]], overload: OverloadLimits) -> None:
        """Args: workers: tells all of them, in the order in which they were added; overload: when one gets no more."""
        self._overload = overload
        self._workers = workers
        self._models: Mapping[str, tuple[RegisteredWorker, ...]] = MappingProxyType({})
        self._cards: Mapping[str, card_pb2.ModelCard] = MappingProxyType({})
        self._pools: dict[str, _Pool] = {}
        self._stale: set[RegisteredWorker] = set()
        self._is_outdated = False
        # Of available workers, while nothing about them changes.
        self._pictures: dict[RegisteredWorker, tuple[WorkerSnapshot, ...]] = {}

    @property
    def models(self) -> Mapping[str, tuple[RegisteredWorker, ...]]:
        """Every model and the workers that serve it, lost ones included."""
        self._update()
        return self._models

    @property
    def cards(self) -> Mapping[str, card_pb2.ModelCard]:
        """Every model's card, a ready worker's before a lost one's."""
        self._update()
        return self._cards

    @property
    def has_ready(self) -> bool:
        """Some worker is available for some model."""
        self._update()
        return bool(self._pools)

    def mark_outdated(self, worker: RegisteredWorker) -> None:
        """A worker came, went, or changed its state or models. The next who asks has everything made anew."""
        self._pictures.pop(worker, None)
        self._is_outdated = True

    def _update(self) -> None:
        if self._is_outdated:
            self._is_outdated = False
            self._rebuild(self._workers())

    def _rebuild(self, workers: Iterable[RegisteredWorker]) -> None:
        serving: dict[str, list[tuple[RegisteredWorker, card_pb2.ModelCard]]] = {}
        known = self._pictures
        pictures: dict[RegisteredWorker, tuple[WorkerSnapshot, ...]] = {}
        ready_ones: set[str] = set()
        for worker in workers:
            worker.why_left_out = ""
            for card in worker.cards:
                serving.setdefault(card.id, []).append((worker, card))
            if worker.is_ready:
                ready_ones.add(worker.id)
                if worker.is_admitted:
                    is_known = worker in known and worker not in self._stale
                    pictures[worker] = known[worker] if is_known else worker.snapshots()
        self._pictures = pictures
        cards: dict[str, card_pb2.ModelCard] = {}
        self._pools = {}
        for model, entries in serving.items():
            ready = [entry for entry in entries if entry[0].id in ready_ones]
            tokenizer = _commonest(card.tokenizer_sha256 for _, card in ready)
            used: list[tuple[RegisteredWorker, card_pb2.ModelCard]] = []
            for entry in ready:
                if _is_same(entry[1].tokenizer_sha256, tokenizer):
                    used.append(entry)
                else:
                    entry[0].why_left_out = OTHER_TOKENIZER.format(model)
            # With the fingerprint, if one of them has it: what is prepared by this card is checked by it.
            cards[model] = next((card for _, card in used if card.tokenizer_sha256), (used or entries)[0][1])
            pool = _Pool(tokenizer)
            for worker, _ in used:
                if worker in pictures:
                    pool.positions[worker] = len(pool.pictures)
                    places = range(len(pool.pictures), len(pool.pictures) + len(pictures[worker]))
                    pool.set_over(places, is_over=self._overload.is_over(worker.load))
                    pool.pictures.extend(pictures[worker])
            if pool.pictures:
                self._pools[model] = pool
        self._models = MappingProxyType(
            {model: tuple(worker for worker, _ in entries) for model, entries in serving.items()}
        )
        self._cards = MappingProxyType(cards)
        self._stale.clear()

    def mark_stale(self, worker: RegisteredWorker) -> None:
        """A worker's load has changed. Costs next to nothing: it happens with every step of every engine."""
        self._stale.add(worker)

    def is_used(self, worker: RegisteredWorker) -> bool:
        """Whether placements could see it, as of the last time that somebody asked for anything."""
        return worker in self._pictures

    def snapshots(self, model: str, tokenizer: str = "") -> tuple[WorkerSnapshot, ...]:
        """Pictures of the workers that are available for a model; empty when there are none.

        Args:
            model: its id.
            tokenizer: fingerprint of the tokenizer that made the prompt; workers with another one do not count. Empty
                when it is not known.
        """
        self._update()
        if self._stale:
            self._refresh()
        pool = self._pools.get(model)
        if pool is None or not _is_same(pool.tokenizer, tokenizer):
            return ()
        if pool.frozen is None:
            pool.frozen = tuple(pool.pictures)
        return pool.frozen

    def placeable(self, model: str, tokenizer: str = "") -> tuple[tuple[WorkerSnapshot, ...], bool]:
        """The ready workers that new work may go to: those that have not too much of it, or all if all have.

        Returns: their pictures, and whether all have too much.
        """
        snapshots = self.snapshots(model, tokenizer)
        pool = self._pools.get(model)
        if pool is None or not pool.over or not snapshots:
            return snapshots, False
        if len(pool.over) == len(snapshots):
            return snapshots, True
        if pool.below is None:
            pool.below = tuple([picture for place, picture in enumerate(snapshots) if place not in pool.over])
        return pool.below, False

    def _refresh(self) -> None:
        """Take new pictures of the workers whose load has changed."""
        for worker in self._stale:
            pictures: tuple[WorkerSnapshot, ...] = ()
            for pool in self._pools.values():
                position = pool.positions.get(worker)
                if position is not None:
                    pictures = pictures or worker.snapshots()
                    self._pictures[worker] = pictures
                    pool.pictures[position : position + len(pictures)] = pictures
                    places = range(position, position + len(pictures))
                    pool.set_over(places, is_over=self._overload.is_over(worker.load))
                    pool.frozen = None
        self._stale.clear()


def _is_same(one: str, other: str) -> bool:
    """Two tokenizers are the same as far as is known: not all engines tell a fingerprint."""
    return one == other or not one or not other


def _commonest(tokenizers: Iterable[str]) -> str:
    """The fingerprint that most have, the first of equals; empty when none has any."""
    counts = Counter(each for each in tokenizers if each)
    return max(counts, key=counts.__getitem__) if counts else ""
