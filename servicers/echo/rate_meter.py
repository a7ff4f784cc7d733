"""Counts tokens per second over about the last second."""

from __future__ import annotations

_WINDOW_S = 1.0


class RateMeter:
    """The clock is the caller's: monotonic seconds, passed in."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._count = 0
        self._rate = 0.0

    def add(self, count: int, now: float) -> None:
        """Count tokens."""
        self._roll(now)
        self._count += count

    def rate(self, now: float) -> float:
        """Tokens per second, of the last full window."""
        self._roll(now)
        return self._rate

    def _roll(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= _WINDOW_S:
            self._rate = self._count / elapsed
            self._since, self._count = now, 0
