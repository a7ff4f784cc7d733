"""Backoff.pause: as long as the schedule says, or short when somebody waits."""

from __future__ import annotations

import asyncio

from smg.workers.backoff import Backoff
from smg.workers.options import WorkerOptions

PATIENT = WorkerOptions(backoff_min_s=3600, backoff_max_s=3600, hurried_pause_s=0.001)


async def test_a_pause_ends_soon_after_somebody_waits():
    backoff = Backoff(PATIENT)
    pausing = asyncio.create_task(backoff.pause())
    await asyncio.sleep(0)
    backoff.hurry()
    await pausing


async def test_a_hurry_before_the_pause_means_nothing():
    backoff = Backoff(PATIENT)
    backoff.hurry()
    pausing = asyncio.create_task(backoff.pause())
    await asyncio.wait((pausing,), timeout=0.05)
    assert not pausing.done()
    pausing.cancel()
    await asyncio.wait((pausing,))


async def test_a_pause_ends_by_itself():
    await Backoff(WorkerOptions(backoff_min_s=0.002, backoff_max_s=0.002, hurried_pause_s=0.001)).pause()


async def test_however_many_wait_a_hurried_pause_lasts_as_long_as_agreed():
    backoff = Backoff(WorkerOptions(backoff_min_s=3600, backoff_max_s=3600, hurried_pause_s=3600))
    pausing = asyncio.create_task(backoff.pause())
    for _ in range(100):
        await asyncio.sleep(0)
        backoff.hurry()
    assert not pausing.done()
    pausing.cancel()
    await asyncio.wait((pausing,))
