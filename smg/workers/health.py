"""Turns single observations of a worker into whether it is fit for new work.

Both classes are plain state: they are told what was seen and when, and do no I/O.
"""

from __future__ import annotations


class HealthGate:
    """Counts checks in a row. One good check suffices for a worker that was never well; later on the thresholds hold."""

    def __init__(self, failures: int, successes: int) -> None:
        """Args: failures, successes: checks in a row that change the verdict, at least 1."""
        self._failures = failures
        self._successes = successes
        self._in_a_row = 0
        self.was_healthy = False
        self.is_healthy = False
        self.reason = "not checked yet"

    def record(self, why_not: str) -> None:
        """Take the outcome of a check: empty when it was good, else what was wrong in words."""
        is_good = not why_not
        if not self.was_healthy:
            self.was_healthy = is_good
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

    A wedged engine stays wedged until it makes progress, or answers that nothing is left on it: that its sequences
    were given up here proves nothing.
    """

    def __init__(self, wedge_s: float) -> None:
        self._wedge_s = wedge_s
        self._progress = -1
        self._since = 0.0
        # As the first answer since it was found wedged had them; steps before that may be older than the wedge.
        self._answered_steps: int | None = None
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
            self._clear(now)
        elif running == 0:
            self._since = now
        elif now - self._since >= self._wedge_s:
            self.is_wedged = True
        return self.is_wedged != was_wedged

    def answered(self, now: float, steps: int, running: int) -> bool:
        """Take the load that a wedged engine has answered with when it was asked.

        Args:
            now: a monotonic clock, in seconds.
            steps: the engine's own count of its steps.
            running: sequences that run or wait on the engine.

        Returns: True if the verdict has changed.
        """
        if not self.is_wedged:
            return False
        if self._answered_steps is None:
            self._answered_steps = steps
        if running and steps == self._answered_steps:
            return False
        self._clear(now)
        return True

    def _clear(self, now: float) -> None:
        self._since = now
        self._answered_steps = None
        self.is_wedged = False
