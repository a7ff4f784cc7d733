"""Finds workers by id among the pictures of one placement, without reading them all each time.

The pictures change with every load report, who is among them seldom does, and their order is stable: a position that
was right is right until the id found there says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.types.worker import WorkerSnapshot

T = TypeVar("T")

# State is kept for so many models; that of more starts over.
MAX_MODELS = 1024


class PerModel(Generic[T]):
    """One state per model, for a bounded number of models."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._states: dict[str, T] = {}

    def __getitem__(self, model: str) -> T:
        state = self._states.get(model)
        if state is None:
            if len(self._states) >= MAX_MODELS:
                self._states.clear()
            state = self._states[model] = self._make()
        return state


class Roster:
    """The positions of one model's workers."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._last = ""

    def find(self, snapshots: Sequence[WorkerSnapshot], worker_id: str) -> WorkerSnapshot | None:
        """The picture of a worker; None when it is not among them."""
        position = self._positions.get(worker_id)
        if position is None:
            # Away is the usual reason. The list is read anew only when it looks like another one.
            if len(snapshots) == len(self._positions) and snapshots[-1].id == self._last:
                return None
        elif position < len(snapshots) and snapshots[position].id == worker_id:
            return snapshots[position]
        self._positions = {snapshot.id: index for index, snapshot in enumerate(snapshots)}
        self._last = snapshots[-1].id
        position = self._positions.get(worker_id)
        return None if position is None else snapshots[position]
