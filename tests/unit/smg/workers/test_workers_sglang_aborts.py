"""Aborts: servers are told what to stop, one request after the other, however badly they hear."""

from __future__ import annotations

import asyncio

from smg.errors import DEADLINE_EXCEEDED, EngineError
from smg.workers.sglang.aborts import Aborts
from smg.workers.sglang.names import RequestNames


class Client:
    """Hears of aborts. Those of names in `deaf` are not answered until the test gives their deadline."""

    def __init__(self, *deaf):
        self.deaf = deaf
        self.heard = asyncio.Queue()
        self.late = asyncio.Event()
        self.asked_at_once = self.most_at_once = 0

    async def abort(self, name):
        self.asked_at_once += 1
        self.most_at_once = max(self.most_at_once, self.asked_at_once)
        self.heard.put_nowait(name)
        try:
            if name in self.deaf:
                await self.late.wait()
                raise EngineError("no answer in time", engine_code=DEADLINE_EXCEEDED)
        finally:
            self.asked_at_once -= 1


async def test_a_server_that_does_not_answer_is_not_asked_more_at_a_time_and_hears_of_all():
    names = RequestNames()
    taken = [names.take(f"request-{number}", number) for number in range(50)]
    aborts, client = Aborts(names), Client(taken[0])
    for name in taken:
        aborts.add(name)
    running = asyncio.create_task(aborts.run(client))
    assert await client.heard.get() == taken[0]
    # Nothing else is sent, and no task waits for each of the others.
    await asyncio.sleep(0)
    assert client.heard.empty()
    client.late.set()
    assert [await client.heard.get() for _ in taken[1:]] == taken[1:]
    assert client.most_at_once == 1
    running.cancel()
    await asyncio.wait((running,))


async def test_a_name_is_free_again_when_the_server_has_heard_or_would_not():
    names = RequestNames()
    deaf, well = names.take("deaf", 1), names.take("well", 2)
    aborts, client = Aborts(names), Client(deaf)
    client.late.set()
    for name in (deaf, well):
        aborts.add(name)
    await aborts.send_last(client)
    assert names.take("deaf", 3) == "deaf"
    assert names.take("well", 4) == "well"
