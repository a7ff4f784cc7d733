"""Turns how a worker's requests end into whether it gets new ones: a circuit breaker.

Closed lets everything through. So many failures in a row within the window open it, and nothing goes to the worker. After
a while, or as soon as the worker's health returns, it is half open: a few requests at a time try the worker; enough
successes in a row close it, one failure opens it again. Outcomes that say nothing of the worker are not told to it, so
that a client's mistakes neither open nor close it, and hold no place of a trial.

Plain state: it is told what happened, asks a clock, and does no I/O.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.errors import DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, UNKNOWN, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.errors import SmgError

# Statuses that are the worker's own fault. All others are the client's (4xx, cancelled), or back-pressure
# (RESOURCE_EXHAUSTED), or what it never could (UNIMPLEMENTED).
_OWN_FAULTS = frozenset((UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS))


class BreakerState(enum.Enum):
    """State of a breaker; the values are those of the metric and of GET /workers."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When breakers open and close.

    Attributes:
        failures: failures in a row that open a breaker; 0 for none that ever opens.
        successes: successes in a row that close a half-open one, and requests that may try the worker at a time.
        open_s: time that it stays open.
        window_s: a run of failures that began longer ago is forgotten from its beginning.
    """

    failures: int = 10
    successes: int = 3
    open_s: float = 60.0
    window_s: float = 120.0


def is_own_fault(error: SmgError) -> bool:
    """Whether an error of a worker counts against it."""
    return isinstance(error, EngineError) and error.engine_code in _OWN_FAULTS


class Breaker:
    """The breaker of one worker."""

    def __init__(self, options: BreakerOptions, clock: Callable[[], float]) -> None:
        """Args: clock: monotonic seconds."""
        self._options = options
        self._clock = clock
        self._state = BreakerState.CLOSED
        # When each of the last failures in a row happened.
        self._failed_at: deque[float] = deque(maxlen=max(1, options.failures))
        self._successes = 0
        self._opened_at = 0.0
        # Requests in flight that were there before the trial, at most.
        self._carried = 0

    @property
    def state(self) -> BreakerState:
        """The state of now."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Everything goes through."""
        return self._state is BreakerState.CLOSED

    @property
    def failures(self) -> int:
        """Failures in a row, up to as many as open it."""
        return len(self._failed_at)

    @property
    def half_opens_in_s(self) -> float:
        """Seconds until an open breaker may be half open."""
        return max(0.0, self._opened_at + self._options.open_s - self._clock())

    def admits(self, inflight: int) -> bool:
        """Whether one more request may go to the worker.

        Args:
            inflight: requests that the worker works on. A trial ends with its request, however that ends: what is no
                longer in flight holds no place.
        """
        if self._state is BreakerState.HALF_OPEN:
            self._carried = min(self._carried, inflight)
            return inflight - self._carried < self._options.successes
        return self._state is BreakerState.CLOSED

    def succeeded(self) -> bool:
        """A request ended well. Returns True if the state has changed."""
        if self._failed_at:
            self._failed_at.clear()
        if self._state is not BreakerState.HALF_OPEN:
            # One that began before the breaker opened proves nothing.
            return False
        self._successes += 1
        if self._successes < self._options.successes:
            return False
        self._state = BreakerState.CLOSED
        return True

    def failed(self) -> bool:
        """A request failed through the worker's own fault. Returns True if the state has changed."""
        options, now = self._options, self._clock()
        if not options.failures or self._state is BreakerState.OPEN:
            return False
        if self._state is BreakerState.HALF_OPEN:
            self._open(now)
            return True
        self._failed_at.append(now)
        while now - self._failed_at[0] > options.window_s:
            self._failed_at.popleft()
        if len(self._failed_at) < options.failures:
            return False
        self._open(now)
        return True

    def try_again(self, inflight: int) -> bool:
        """Let requests try the worker, if it is open. Returns True if the state has changed.

        Args: inflight: requests that the worker works on now; they are no trial.
        """
        if self._state is not BreakerState.OPEN:
            return False
        self._state = BreakerState.HALF_OPEN
        self._successes = 0
        self._carried = inflight
        return True

    def _open(self, now: float) -> None:
        self._state = BreakerState.OPEN
        self._opened_at = now
        self._failed_at.clear()
