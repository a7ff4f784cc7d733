"""Counts what the engine does and says when its load has changed."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from servicers.local.prefix_cache import PrefixCache
    from servicers.local.scheduler import Scheduler

WINDOW_S = 1.0
"""Tokens per second are counted over so long."""


class LoadMeter:
    """Owned by the compute thread; `latest` may be read anywhere, a message is never changed once it is there."""

    def __init__(self, scheduler: Scheduler, cache: PrefixCache) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._steps = 0
        self._tokens: collections.deque[tuple[float, int]] = collections.deque()
        self._told: tuple[int, int] = (0, 0)
        self.latest = card_pb2.Load(kv_capacity_tokens=cache.capacity_tokens)

    def count_step(self, tokens: int, now_s: float) -> None:
        """A step computed something and put out so many tokens."""
        self._steps += 1
        if tokens:
            self._tokens.append((now_s, tokens))

    def update(self, now_s: float) -> card_pb2.Load | None:
        """Take stock at the end of a step.

        Returns: the load if sequences came or went; the servicer tells it every second besides.
        """
        while self._tokens and self._tokens[0][0] <= now_s - WINDOW_S:
            self._tokens.popleft()
        scheduler = self._scheduler
        counts = (scheduler.running, scheduler.waiting)
        self.latest = card_pb2.Load(
            running=counts[0],
            waiting=counts[1],
            waiting_uncached_tokens=scheduler.waiting_uncached_tokens(),
            kv_used_tokens=self._cache.used_tokens(),
            kv_evictable_tokens=self._cache.evictable_tokens(),
            kv_capacity_tokens=self._cache.capacity_tokens,
            # Nobody takes stock while the engine idles.
            tokens_per_second=sum(tokens for _, tokens in self._tokens) / WINDOW_S if any(counts) else 0.0,
            steps=self._steps,
        )
        if counts == self._told:
            return None
        self._told = counts
        return self.latest
