"""EventLog: who follows it late sees what was, then what comes; what is forgotten is told."""

import asyncio

import pytest

from smg.errors import InvalidRequest
from smg.pipelines.event_log import EventLog


class Follower:
    def __init__(self):
        self.numbers = []

    def event(self, kind, number, data):
        self.numbers.append(number)

    def flush(self):
        pass

    def is_behind(self, go_on):
        return False


def filled(count, max_bytes=1000):
    log = EventLog(max_bytes)
    for number in range(count):
        log.event("k", number, b"x" * 10)
    return log


async def test_a_late_follower_misses_nothing_and_sees_nothing_twice():
    log, follower = filled(5), Follower()
    following = asyncio.create_task(log.follow(follower, 1))
    await asyncio.sleep(0)
    log.event("k", 5, b"x")
    log.close()
    await following
    assert follower.numbers == [2, 3, 4, 5]


async def test_one_that_has_ended_is_told_as_a_whole():
    log, follower = filled(3), Follower()
    log.close()
    await log.follow(follower)
    assert follower.numbers == [0, 1, 2]


async def test_the_oldest_are_forgotten_and_that_is_told():
    log = filled(10, max_bytes=40)
    with pytest.raises(InvalidRequest, match="events before 6"):
        await log.follow(Follower(), 3)
    follower = Follower()
    log.close()
    await log.follow(follower, 5)
    assert follower.numbers == [6, 7, 8, 9]


async def test_a_follower_that_leaves_gets_nothing_more():
    log, follower = filled(1), Follower()
    following = asyncio.create_task(log.follow(follower))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    log.event("k", 1, b"x")
    assert follower.numbers == [0]
