"""Notices an engine that says nothing while sequences run on it: a process that is frozen, or a network that swallows.

The contract has an engine tell its load at least every second while work runs, whether or not it makes steps. A kernel
goes on to acknowledge for a process that is stopped, so that neither TCP nor its keepalive would ever notice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Looks within the time: the verdict is late by at most one part of it.
_LOOKS = 4


async def wait_for_silence(silence_s: float, events: Callable[[], int], running: Callable[[], int]) -> None:
    """Return when nothing was heard for so long while sequences ran.

    Args:
        silence_s: the time, in seconds.
        events: a number that changes with each event of the engine.
        running: sequences that wait for events.
    """
    heard, quiet = events(), 0
    while quiet < _LOOKS:
        await asyncio.sleep(silence_s / _LOOKS)
        now = events()
        quiet = quiet + 1 if now == heard and running() else 0
        heard = now
