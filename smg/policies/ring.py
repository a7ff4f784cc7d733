"""Maps keys to workers so that a worker which comes or goes moves only the keys that it gains or loses.

Each worker has one point on a ring of 64-bit numbers, each key has several. The worker that follows one of them most
closely gets the key, the next closest is its substitute, and so on: even loads without hundreds of points per worker,
and a change of the fleet costs one sorting of as many points as there are workers (Appleton and O'Reilly, "Multi-probe
consistent hashing", 2015). Points come from addresses, so several routers agree.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b, shake_128
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.types.worker import WorkerSnapshot

# 21 points per key keep the busiest worker within about 5 % of the mean, as the paper has it.
_PROBES = Struct("<21Q")
_FOLLOWING = 8
_MASK = 2**64 - 1


def _point(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


class Ring:
    """The points of one model's workers."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._known: dict[str, int] = {}
        self._points: list[int] = []
        self._positions: list[int] = []

    def place(self, snapshots: Sequence[WorkerSnapshot], key: bytes) -> WorkerSnapshot:
        """The worker of a key."""
        worker = self._closest(snapshots, key) if self._is_alike(snapshots) else None
        if worker is None:
            self._read(snapshots)
            worker = self._closest(snapshots, key)
        return worker or snapshots[0]

    def substitutes(self, snapshots: Sequence[WorkerSnapshot], key: bytes) -> list[WorkerSnapshot]:
        """The workers that a key goes to when its own cannot take it, best first; right after `place`.

        Some, not all: those next to the key's points, then those that follow its own worker on the ring.
        """
        near = sorted(self._near(key))
        size, own = len(self._positions), near[0][1]
        follow = [(own + step) % size for step in range(1, _FOLLOWING + 1)]
        places = dict.fromkeys([*(found for _, found in near), *follow])
        del places[own]
        return [snapshots[self._positions[found]] for found in places]

    def _closest(self, snapshots: Sequence[WorkerSnapshot], key: bytes) -> WorkerSnapshot | None:
        position = self._positions[min(self._near(key))[1]]
        return snapshots[position] if snapshots[position].id == self._ids[position] else None

    def _near(self, key: bytes) -> list[tuple[int, int]]:
        """For each point of a key: how far it is to the next worker's, and that one's place on the ring."""
        points, size = self._points, len(self._points)
        near: list[tuple[int, int]] = []
        for probe in _PROBES.unpack(shake_128(key).digest(_PROBES.size)):
            found = bisect_left(points, probe) % size
            near.append(((points[found] - probe) & _MASK, found))
        return near

    def _is_alike(self, snapshots: Sequence[WorkerSnapshot]) -> bool:
        """The workers seem to be those of last time. The worker that is found is checked as well."""
        ids = self._ids
        return len(ids) == len(snapshots) and ids[-1] == snapshots[-1].id and ids[0] == snapshots[0].id

    def _read(self, snapshots: Sequence[WorkerSnapshot]) -> None:
        names = [snapshot.url for snapshot in snapshots]
        if len(set(names)) < len(names):
            names = [snapshot.id for snapshot in snapshots]
        known = self._known
        self._known = {name: known.get(name) or _point(name) for name in names}
        around = sorted((self._known[name], position) for position, name in enumerate(names))
        self._ids = [snapshot.id for snapshot in snapshots]
        self._points = [point for point, _ in around]
        self._positions = [position for _, position in around]
