"""How busy workers are, and how to find out without looking at all of a large fleet."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from smg.types.worker import WorkerSnapshot

# A fleet up to this size is looked at as a whole; of a larger one every pick sees between half and all as many.
SAMPLE = 32
# Of more than so many equals not all are looked at.
_EQUALS = 64
# The idlest of so many is idle enough: in a fleet of thousands all but a few are busier.
_LOOKED_AT = 512


# As fast as it gets: a policy that looks at everybody spends its time here.
_saturation = attrgetter("saturation")


def busy(snapshot: WorkerSnapshot) -> int:
    """Requests that a worker has: as it last told, or ours where its word is late."""
    return max(snapshot.inflight_requests, snapshot.running + snapshot.waiting)


def total_busy(snapshots: Sequence[WorkerSnapshot]) -> int:
    """Requests that all of these workers have."""
    # Spelled out: a call of `busy` per worker would cost more than the sum.
    total = 0
    for snapshot in snapshots:
        ours, told = snapshot.inflight_requests, snapshot.running + snapshot.waiting
        total += ours if ours > told else told  # noqa: FURB136 - max() is that call
    return total


def sample(snapshots: Sequence[WorkerSnapshot], rng: random.Random) -> Sequence[WorkerSnapshot]:
    """All workers of a small fleet; of a large one some, evenly spaced, each as likely as any other."""
    if len(snapshots) <= SAMPLE:
        return snapshots
    step = -(-len(snapshots) // SAMPLE)
    return snapshots[int(rng.random() * step) :: step]


def idlest(snapshots: Sequence[WorkerSnapshot], rng: random.Random) -> WorkerSnapshot:
    """The lowest saturation, then the fewest requests of ours, then any of those left.

    Where many are equal, as in a large fleet at rest, some of them stand for all; so do 256 or more evenly spaced ones
    for a fleet of more than 512.
    """
    if len(snapshots) > _LOOKED_AT:
        step = -(-len(snapshots) // _LOOKED_AT)
        snapshots = snapshots[int(rng.random() * step) :: step]
    saturations = list(map(_saturation, snapshots))
    equal = _places(saturations, min(saturations), rng)
    if len(equal) == 1:
        return snapshots[equal[0]]
    requests = [snapshots[place].inflight_requests for place in equal]
    fewest = min(requests)
    return snapshots[
        rng.choice([place for place, ours in zip(equal, requests, strict=True) if ours == fewest])
    ]


def _places(loads: list[float], wanted: float, rng: random.Random) -> list[int]:
    """Where a load is found: everywhere if that is in few places, else in some from a place drawn by chance."""
    if len(loads) <= _EQUALS:
        return [place for place, load in enumerate(loads) if load == wanted]
    found: list[int] = []
    place = int(rng.random() * len(loads))
    for end in (len(loads), place):
        with contextlib.suppress(ValueError):
            while len(found) < _EQUALS:
                place = loads.index(wanted, place, end) + 1
                found.append(place - 1)
        place = 0
    return found


def busiest_allowed(snapshots: Sequence[WorkerSnapshot], factor: float, margin: float) -> float:
    """Requests above which a worker counts as overloaded.

    That is more than `factor` times the mean, and more than `margin` above it; the request to be placed counts.
    """
    mean = (total_busy(snapshots) + 1) / len(snapshots)
    return max(mean * factor, mean + margin)
