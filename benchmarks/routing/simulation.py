"""Runs one policy over one workload in simulated time: the router's own policy classes, and engines that are simulated.

Nothing sleeps and nothing is random but the generators that are seeded, so that a run gives the same figures each time
on every machine.
"""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.routing.engine import EngineFigures, Job, SimulatedEngine
from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.policies.bucket import Bucket
from smg.policies.manual import Manual
from smg.settings import RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.routing.workloads import Session
    from smg.policies.base import Policy

# The first part of a run fills the caches and does not count.
WARM_UP = 0.2
MODEL = "model"


@dataclass
class Figures:
    """What came out.

    Attributes:
        hit_rate: share of all prompt tokens that caches held.
        imbalance: requests of the busiest worker over the mean, as seen by the requests that arrived.
        ttft_s: time to first token of each request, sorted.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    peaks: list[float] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def imbalance(self) -> float:
        return statistics.fmean(self.peaks)

    def percentile_ms(self, percent: float) -> float:
        times = sorted(self.ttft_s)
        return times[min(len(times) - 1, int(len(times) * percent / 100))] * 1000

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.ttft_s) * 1000


class Simulation:
    """A fleet, a policy, and a clock that jumps from event to event."""

    def __init__(self, name: str, workers: int, engine: EngineFigures, seed: int) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._figures = Figures()
        self._policy = self._make_policy(name, random.Random(seed))
        self._engines = [
            SimulatedEngine(index, engine, lambda: self._now, self._at, self._first_token)
            for index in range(workers)
        ]
        self._left_out = 0

    def run(self, sessions: Sequence[Session]) -> Figures:
        """Run to the end of the last session."""
        self._left_out = int(WARM_UP * sum(len(session.turns) for session in sessions))
        for session in sessions:
            self._at(session.starts_s, partial(self._send, session, 0))
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
        return self._figures

    def _make_policy(self, name: str, rng: random.Random) -> Policy:
        settings = RoutingSettings(policy=name)  # pyright: ignore[reportArgumentType] - checked there
        if name in {"bucket", "manual"}:
            make = Bucket if name == "bucket" else Manual
            return make(settings, rng, clock=lambda: self._now)
        return make_policy(settings, rng)

    def _at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), event))

    def _send(self, session: Session, turn: int) -> None:
        prompt = session.turns[turn]
        pictures = tuple([engine.picture() for engine in self._engines])
        request = RouteRequest(MODEL, prompt.ids, prompt.key)
        picked = self._policy.pick(pictures, request)
        self._left_out -= 1
        if self._left_out < 0:
            loads = [engine.inflight for engine in self._engines]
            if any(loads):
                self._figures.peaks.append(max(loads) * len(loads) / sum(loads))
        engine = self._engines[int(picked.id.removeprefix("worker-"))]
        engine.submit(Job(prompt, self._now, partial(self._next, session, turn + 1)))

    def _next(self, session: Session, turn: int) -> None:
        if turn < len(session.turns):
            self._at(self._now + session.turns[turn].pause_s, partial(self._send, session, turn))

    def _first_token(self, job: Job, cached: int) -> None:
        if self._left_out >= 0:
            return
        figures = self._figures
        figures.prompt_tokens += job.prompt.tokens
        figures.cached_tokens += cached
        figures.ttft_s.append(self._now - job.sent_s)
