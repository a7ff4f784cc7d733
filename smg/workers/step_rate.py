"""Turns an engine's count of steps, heard now and then, into steps per second."""

from __future__ import annotations

# Counts closer together than this say little.
_SPAN_S = 1.0


class StepRate:
    """The rate between the last two counts that were a second or more apart. Counts that go back start over."""

    def __init__(self) -> None:
        self._steps = -1
        self._since = 0.0
        self._rate = 0.0

    def heard(self, now: float, steps: int) -> None:
        """Take a count. Args: now: monotonic seconds; steps: since the engine started."""
        if self._steps < 0 or steps < self._steps:
            self._steps, self._since, self._rate = steps, now, 0.0
        elif now - self._since >= _SPAN_S:
            self._rate = (steps - self._steps) / (now - self._since)
            self._steps, self._since = steps, now

    def per_second(self, now: float) -> float:
        """Steps per second. An engine that has told nothing for long stands still: nothing runs on it."""
        return self._rate if now - self._since < 3 * _SPAN_S else 0.0
