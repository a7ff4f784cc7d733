"""Remembers which worker each routing key belongs to: bounded in number and in idle time.

A key whose worker is away goes to a substitute, the same each time, and goes home when its worker is back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from smg.policies.base import Pick
from smg.policies.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.types.worker import WorkerSnapshot

# Keys forgotten in one placement at most: a sweep after a quiet hour must not hold up the request that starts it.
_SWEEP = 256


class _Pin:
    """Where a key belongs."""

    __slots__ = ("home", "substitute", "used_s")

    def __init__(self, home: str, used_s: float) -> None:
        self.home = home
        self.substitute = ""
        self.used_s = used_s


class Pins:
    """The keys of one model, in the order of their last use.

    Attributes:
        counts: keys per worker id, of the workers that have any.
    """

    def __init__(
        self, capacity: int, max_idle_s: float, sweep_interval_s: float, clock: Callable[[], float]
    ) -> None:
        self.counts: dict[str, int] = {}
        self._capacity = capacity
        self._max_idle_s = max_idle_s
        self._sweep_interval_s = sweep_interval_s
        self._clock = clock
        self._next_sweep_s = clock() + sweep_interval_s
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._roster = Roster()

    def __len__(self) -> int:
        return len(self._pins)

    def place(self, snapshots: Sequence[WorkerSnapshot], key: str, assign: Callable[[], Pick]) -> Pick:
        """The worker that a key belongs to. Args: assign: picks one for a key that has none, or whose are away."""
        now = self._clock()
        if now >= self._next_sweep_s:
            self._sweep(now)
        pin = self._pins.get(key)
        if pin is not None and now - pin.used_s > self._max_idle_s:
            self._forget(key)
            pin = None
        if pin is None:
            pick = assign()
            self._remember(key, pick.worker.id, now)
            return Pick(pick.worker, "new key: " + pick.because, pick.facts)
        pin.used_s = now
        self._pins.move_to_end(key)
        worker = self._roster.find(snapshots, pin.home)
        if worker is not None:
            return Pick(worker, "the key's worker")
        worker = self._roster.find(snapshots, pin.substitute) if pin.substitute else None
        if worker is not None:
            return Pick(worker, "the key's substitute while {} is away", (pin.home,))
        pick = assign()
        pin.substitute = pick.worker.id
        return Pick(pick.worker, "new substitute: " + pick.because, pick.facts)

    def _remember(self, key: str, worker_id: str, now: float) -> None:
        self._pins[key] = _Pin(worker_id, now)
        self.counts[worker_id] = self.counts.get(worker_id, 0) + 1
        if len(self._pins) > self._capacity:
            self._forget(next(iter(self._pins)))

    def _forget(self, key: str) -> None:
        home = self._pins.pop(key).home
        left = self.counts[home] - 1
        if left:
            self.counts[home] = left
        else:
            del self.counts[home]

    def _sweep(self, now: float) -> None:
        for _ in range(_SWEEP):
            key = next(iter(self._pins), None)
            if key is None or now - self._pins[key].used_s <= self._max_idle_s:
                self._next_sweep_s = now + self._sweep_interval_s
                return
            self._forget(key)
