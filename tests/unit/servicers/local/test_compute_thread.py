"""ComputeThread: faults outside of a step's own care are told to whoever waits, and the thread lives on."""

import asyncio
import threading

import pytest

from servicers.local import compute_thread
from servicers.local.compute_thread import ComputeThread


class Steps:
    """Does what a Stepper does for the thread: steps while it has something to say."""

    def __init__(self) -> None:
        self.todo = []
        self.threads = set()
        self.waits = False

    @property
    def can_step(self) -> bool:
        return bool(self.todo)

    @property
    def has_work(self) -> bool:
        return self.waits

    def step(self, now_s: float):
        self.threads.add(threading.current_thread().name)
        said = self.todo.pop(0) if self.todo else [["watched"]] if self.waits else []
        if said == "fault":
            raise RuntimeError("cannot tell")
        return said

    def lose_everything(self, refusal):
        self.todo = []
        return [("all", refusal)]


@pytest.fixture
async def rig():
    steps, told = Steps(), asyncio.Queue()
    thread = ComputeThread(lambda _: steps, told.put_nowait, asyncio.get_running_loop())
    assert await thread.start() is steps
    yield thread, told
    await thread.stop()


def say(*words):
    return lambda steps: steps.todo.extend(words)


async def test_what_a_step_says_arrives_on_the_loop_in_order(rig):
    thread, told = rig
    thread.call(say(["a"], ["b"], [], ["c"]))
    assert [await told.get() for _ in range(3)] == [["a"], ["b"], ["c"]]


async def test_a_step_that_cannot_be_told_loses_all_work_and_the_next_goes_on(rig, caplog):
    thread, told = rig
    thread.call(say("fault", ["lost"]))
    ((who, refusal),) = await told.get()
    assert (who, refusal.code, refusal.is_retryable) == ("all", 13, True)
    thread.call(say(["d"]))
    assert await told.get() == ["d"]
    assert "cannot tell" in caplog.text


async def test_a_command_that_fails_does_not_stop_the_others(rig, caplog):
    thread, told = rig

    def fail(_):
        raise RuntimeError("bad command")

    thread.call(fail)
    thread.call(say(["e"]))
    assert await told.get() == ["e"]
    assert "bad command" in caplog.text


async def test_work_that_cannot_be_computed_yet_is_looked_after(rig, monkeypatch):
    monkeypatch.setattr(compute_thread, "WATCH_S", 0.001)
    thread, told = rig
    thread.call(lambda steps: setattr(steps, "waits", True))
    assert [await told.get() for _ in range(3)] == [[["watched"]]] * 3
    thread.call(lambda steps: setattr(steps, "waits", False))


async def test_a_fault_in_making_the_stepper_is_raised_by_start():
    def make(_):
        raise ValueError("no model")

    thread = ComputeThread(make, lambda _: None, asyncio.get_running_loop())
    with pytest.raises(ValueError, match="no model"):
        await thread.start()
    await thread.stop()


async def test_stop_without_start_returns():
    await ComputeThread(lambda _: Steps(), lambda _: None, asyncio.get_running_loop()).stop()
