"""Turns: long work leaves the event loop to everybody else in between, however much of it there is."""

import asyncio

from smg.pipelines.turns import LEAVES, TURN_COST, Turns


def work(name, log, steps, cost=TURN_COST):
    for number in range(steps):
        log.append(f"{name}{number}")
        yield cost


async def other_callbacks(turns, until):
    """How often the loop came round to something else before that was true."""
    ticks = 0
    while not until():
        await asyncio.sleep(0)
        ticks += 1
    return ticks


async def test_what_is_short_is_done_at_once():
    log = []
    Turns().add(work("a", log, 3, cost=1))
    assert log == ["a0", "a1", "a2"]


async def test_the_loop_comes_round_between_the_steps_of_what_is_long():
    turns, log = Turns(), []
    turns.add(work("a", log, 50))
    assert log == ["a0"]
    assert await other_callbacks(turns, lambda: len(log) == 50) >= 48


async def test_many_share_one_turn_and_go_on_one_after_the_other():
    turns, log = Turns(), []
    for name in "abc":
        turns.add(work(name, log, 2))
    # The first has used up this iteration for all of them.
    assert log == ["a0"]
    assert await other_callbacks(turns, lambda: len(log) == 6) >= 4
    assert log == ["a0", "a1", "b0", "c0", "b1", "c1"]


async def test_the_next_iteration_has_time_of_its_own():
    turns, log = Turns(), []
    turns.add(work("a", log, 1))
    turns.add(work("b", log, 1))
    assert log == ["a0"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turns.add(work("c", log, 1))
    assert log == ["a0", "b0", "c0"]


async def test_work_that_leaves_goes_on_only_when_it_is_added_again():
    turns, log = Turns(), []

    def leaving():
        log.append("begun")
        yield LEAVES
        log.append("ended")

    leaves = leaving()
    turns.add(leaves)
    for _ in range(3):
        await asyncio.sleep(0)
    assert log == ["begun"]
    turns.add(leaves, at_once=False)
    assert log == ["begun"]
    await asyncio.sleep(0)
    assert log == ["begun", "ended"]


async def test_work_that_is_added_by_work_waits_for_its_turn():
    turns, log = Turns(), []

    def adding():
        turns.add(work("inner", log, 1, cost=1))
        log.append("outer")
        yield 1

    turns.add(adding())
    assert log == ["outer", "inner0"]
