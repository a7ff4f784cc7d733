"""Backlog: one choice's work in order, at the pace of its client, and over as soon as the choice is."""

import asyncio

import pytest

from smg.pipelines import backlog as backlog_module
from smg.pipelines.backlog import Backlog
from smg.pipelines.turns import LEAVES, TURN_COST, Turns


class Writer:
    """A choice whose client is behind while `is_behind`."""

    def __init__(self):
        self.is_abandoned = self.is_behind = False
        self.waiting = []
        self.log = []
        self.errors = []
        self.caught = asyncio.Event()

    def client_is_behind(self, go_on):
        if self.is_behind:
            self.waiting.append(go_on)
        return self.is_behind

    def reads(self):
        self.is_behind = False
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on()

    def caught_up(self):
        self.caught.set()

    def broke(self, error):
        self.errors.append(error)

    def work(self, name, steps=1):
        for number in range(steps):
            self.log.append(f"{name}{number}")
            yield TURN_COST


async def loop_rounds(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_comes_later_waits_for_what_came_before():
    writer, backlog = Writer(), Backlog(Turns())
    backlog.add(writer, writer.work("a", 3))
    backlog.add(writer, writer.work("b"))
    assert writer.log == ["a0"]
    await writer.caught.wait()
    assert writer.log == ["a0", "a1", "a2", "b0"]


async def test_nothing_is_written_while_the_client_is_behind():
    writer, backlog = Writer(), Backlog(Turns())
    writer.is_behind = True
    backlog.add(writer, writer.work("a", 2))
    backlog.add(writer, writer.work("b"))
    await loop_rounds()
    assert writer.log == []
    assert len(writer.waiting) == 1
    writer.reads()
    await writer.caught.wait()
    assert writer.log == ["a0", "a1", "b0"]


async def test_being_called_for_nothing_waits_on():
    writer, backlog = Writer(), Backlog(Turns())
    writer.is_behind = True
    backlog.add(writer, writer.work("a"))
    for _ in range(3):
        for go_on in [*writer.waiting, *writer.waiting]:
            go_on()
        await loop_rounds()
    assert writer.log == []
    writer.reads()
    await writer.caught.wait()
    assert writer.log == ["a0"]


@pytest.mark.parametrize("name", ["PATIENCE_S", "MAX_WAITING"])
async def test_patience_with_a_client_that_reads_nothing_ends(name, monkeypatch):
    monkeypatch.setattr(backlog_module, name, 0)
    writer, backlog = Writer(), Backlog(Turns())
    writer.is_behind = True
    backlog.add(writer, writer.work("a"))
    backlog.add(writer, writer.work("b"))
    await writer.caught.wait()
    assert writer.log == ["a0", "b0"]


async def test_work_may_wait_for_something_else():
    writer, backlog = Writer(), Backlog(Turns())
    told = []

    def waiting():
        while not told:
            yield LEAVES
        yield from writer.work("a")

    backlog.add(writer, waiting())
    await loop_rounds()
    backlog.go_on()
    await loop_rounds()
    assert writer.log == []
    told.append(True)
    backlog.go_on()
    await writer.caught.wait()
    assert writer.log == ["a0"]


async def test_after_the_end_of_the_choice_nothing_is_written():
    writer, backlog = Writer(), Backlog(Turns())
    backlog.add(writer, writer.work("a", 3))
    writer.is_abandoned = True
    await writer.caught.wait()
    assert writer.log == ["a0"]


async def test_what_raises_ends_its_own_choice_alone():
    turns = Turns()
    writer, other = Writer(), Writer()

    def raising():
        yield TURN_COST
        raise ValueError("bad row")

    broken, sound = Backlog(turns), Backlog(turns)
    broken.add(writer, raising())
    broken.add(writer, writer.work("late"))
    sound.add(other, other.work("a", 3))
    await other.caught.wait()
    await writer.caught.wait()
    assert [str(error) for error in writer.errors] == ["bad row"]
    assert writer.log == []
    assert (other.errors, other.log) == ([], ["a0", "a1", "a2"])
