"""wait_for_silence: silence counts while sequences run, and any event ends it."""

import asyncio

from smg.workers.silence import wait_for_silence

LOOK_S = 0.001


class Engine:
    """What is seen of it, look by look: whether it has spoken, and how many sequences run."""

    def __init__(self, *looks):
        self._looks = iter(looks)
        self._events = self._running = 0

    def events(self):
        spoke, self._running = next(self._looks, (False, self._running))
        self._events += spoke
        return self._events

    def running(self):
        return self._running

    def left(self):
        return len(list(self._looks))


SILENT, SPOKE, IDLE = (False, 1), (True, 1), (False, 0)


async def test_four_silent_looks_are_enough():
    await wait_for_silence(4 * LOOK_S, (engine := Engine(SPOKE, *[SILENT] * 5)).events, engine.running)
    assert engine.left() == 1


async def test_an_event_begins_the_count_anew():
    engine = Engine(SPOKE, SILENT, SILENT, SILENT, SPOKE, SILENT, SILENT, SILENT, SILENT, SILENT)
    await wait_for_silence(4 * LOOK_S, engine.events, engine.running)
    assert engine.left() == 1


async def test_an_engine_without_work_may_be_silent():
    engine = Engine(SPOKE, *[IDLE] * 10, *[SILENT] * 5)
    await asyncio.wait_for(wait_for_silence(4 * LOOK_S, engine.events, engine.running), 10)
    assert engine.left() == 1
