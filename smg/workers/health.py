"""Turns single observations of a worker into whether it is fit for new work.

Both classes are plain state: they are told what was seen and when, and do no I/O.
"""

from __future__ import annotations


class HealthGate:
    """Counts checks in a row. The first check ever decides alone; later ones need the thresholds."""

    def __init__(self, failures: int, successes: int) -> None:
        """Args: failures, successes: checks in a row that change the verdict, at least 1."""
        self._failures = failures
        self._successes = successes
        self._in_a_row = 0
        self._is_first = True
        self.is_healthy = False
        self.reason = "not checked yet"

    def record(self, why_not: str) -> None:
        """Take the outcome of a check: empty when it was good, else what was wrong in words."""
        is_good = not why_not
        if self._is_first:
            self._is_first = False
            self._judge(why_not)
        elif is_good == self.is_healthy:
            self._in_a_row = 0
            if not is_good:
                self.reason = why_not
        else:
            self._in_a_row += 1
            if self._in_a_row >= (self._successes if is_good else self._failures):
                self._judge(why_not)

    def _judge(self, why_not: str) -> None:
        self._in_a_row = 0
        self.is_healthy = not why_not
        self.reason = why_not


class WedgeWatch:
    """Notices that an engine makes no progress while sequences run on it.

    A wedged engine stays wedged until it makes progress: that its sequences were given up proves nothing.
    """

    def __init__(self, wedge_s: float) -> None:
        self._wedge_s = wedge_s
        self._progress = -1
        self._since = 0.0
        self.is_wedged = False

    def observe(self, now: float, progress: int, running: int) -> bool:
        """Take a look at the worker.

        Args:
            now: a monotonic clock, in seconds.
            progress: any number that changes with every step.
            running: sequences that should be making progress.

        Returns: True if the verdict has changed.
        """
        was_wedged = self.is_wedged
        if progress != self._progress:
            self._progress = progress
            self._since = now
            self.is_wedged = False
        elif running == 0:
            self._since = now
        elif now - self._since >= self._wedge_s:
            self.is_wedged = True
        return self.is_wedged != was_wedged
