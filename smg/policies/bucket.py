"""Picks a worker by the length of the prompt, so that short ones do not wait behind long ones.

Each worker has a range of lengths. The ranges are drawn anew from recent lengths, so that each sums up to the same.
While the sums sent of late differ too much, work goes to the worker that got the least.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from smg.policies.base import BasePolicy, Pick
from smg.policies.blocks import TOKEN_BYTES
from smg.policies.loads import idlest, sample
from smg.policies.roster import PerModel

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from smg.policies.base import RouteRequest
    from smg.settings import RoutingSettings
    from smg.types.worker import WorkerSnapshot

# Lengths that the ranges are drawn from. More would not draw them better.
_RECENT = 1024


class _Ranges:
    """The lengths of one model's prompts.

    Attributes:
        limits: the longest length of each worker but the last, in the order of the workers.
    """

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.recent: deque[int] = deque(maxlen=_RECENT)
        self.next_draw_s = 0.0
        self.sent: dict[str, int] = {}

    def draw(self, workers: int) -> None:
        """Cut the recent lengths into as many ranges of about equal sums."""
        lengths = sorted(self.recent)
        part = sum(lengths) / workers
        self.limits = []
        passed, due = 0, part
        for length in lengths:
            passed += length
            while passed >= due and len(self.limits) < workers - 1:
                self.limits.append(length)
                due += part
        self.sent = {}


class Bucket(BasePolicy):
    """Keeps recent lengths, and what was sent to each worker since the ranges were drawn."""

    def __init__(
        self,
        settings: RoutingSettings,
        rng: random.Random,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._interval_s = settings.bucket_adjust_interval_secs
        self._abs_threshold = settings.balance_abs_threshold
        self._rel_threshold = settings.balance_rel_threshold
        self._ranges: PerModel[_Ranges] = PerModel(_Ranges)

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick the worker of the prompt's length."""
        length = len(request.leading_ids) // TOKEN_BYTES or request.text_length
        ranges = self._ranges[request.model]
        now = self._clock()
        if now >= ranges.next_draw_s or len(ranges.limits) >= len(snapshots):
            ranges.draw(len(snapshots))
            ranges.next_draw_s = now + self._interval_s
        pick = self._pick(snapshots, ranges, length)
        ranges.recent.append(length)
        ranges.sent[pick.worker.id] = ranges.sent.get(pick.worker.id, 0) + length
        return pick

    def _pick(self, snapshots: Sequence[WorkerSnapshot], ranges: _Ranges, length: int) -> Pick:
        if not ranges.limits:
            return Pick(idlest(sample(snapshots, self._rng), self._rng), "no lengths known yet: least busy")
        worker = snapshots[bisect_left(ranges.limits, length)]
        sent = ranges.sent
        got = sent.get(worker.id, 0)
        if got <= self._abs_threshold:
            return Pick(worker, "length {} is in its range", (length,))
        seen = sample(snapshots, self._rng)
        sums = [sent.get(snapshot.id, 0) for snapshot in seen]
        least = min(sums)
        if got - least > self._abs_threshold and got > self._rel_threshold * least:
            calm = seen[sums.index(least)]
            return Pick(calm, "it got {} of late, {} whose range it is got {}", (least, worker.id, got))
        return Pick(worker, "length {} is in its range", (length,))
