"""Admission: so many run, so many wait, first come first served, and every exit frees its place."""

import asyncio

import pytest

from smg.errors import Overloaded, WorkerUnavailable
from smg.pipelines.admission import Admission, RateLimit


async def hold(admission, release, entered=None):
    async with admission.permit():
        if entered is not None:
            entered.append(len(entered))
        await release.wait()


async def until(is_so):
    while not is_so():  # noqa: ASYNC110 - a state, for which there is no event
        await asyncio.sleep(0.001)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_without_a_bound_all_run():
    admission, release = Admission(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(hold(admission, release))
        await settle()
        assert admission.running == 50
        release.set()
    assert admission.running == 0


async def test_the_rest_waits_and_runs_in_order():
    admission, release = Admission(1, queue_size=5), asyncio.Event()
    order = []

    async def numbered(number):
        async with admission.permit():
            order.append(number)
            await release.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(numbered(number))
            await settle()
        assert (admission.running, admission.waiting) == (1, 3)
        release.set()
    assert order == [0, 1, 2, 3]
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_full_queue_is_told_at_once_with_a_time_to_come_back():
    admission, release = Admission(1, queue_size=1), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(admission, release))
        group.create_task(hold(admission, release))
        await settle()
        with pytest.raises(Overloaded) as caught:
            await hold(admission, release)
        assert (caught.value.code, caught.value.retry_after_s) == ("admission_queue_full", 2)
        release.set()


async def test_waiting_ends_after_the_queues_time():
    admission, release = Admission(1, queue_size=1, queue_timeout_s=0.01), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(admission, release))
        await settle()
        with pytest.raises(WorkerUnavailable) as caught:
            await hold(admission, release)
        assert (caught.value.code, caught.value.status) == ("admission_queue_timeout", 503)
        assert admission.waiting == 0
        release.set()
    assert admission.running == 0


async def test_a_client_that_leaves_the_queue_frees_its_place():
    admission, release = Admission(1, queue_size=1), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(admission, release))
        await settle()
        waiting = asyncio.create_task(hold(admission, release))
        await settle()
        waiting.cancel()
        await settle()
        assert admission.waiting == 0
        release.set()
    assert admission.running == 0


async def test_a_place_handed_to_one_who_leaves_goes_to_the_next():
    admission = Admission(1, queue_size=2)
    first, release = asyncio.Event(), asyncio.Event()
    entered = []
    holder = asyncio.create_task(hold(admission, first))
    await settle()
    leaver = asyncio.create_task(hold(admission, release, entered))
    await settle()
    follower = asyncio.create_task(hold(admission, release, entered))
    await settle()
    first.set()
    await asyncio.sleep(0)
    leaver.cancel()
    await settle()
    assert admission.running == 1
    release.set()
    await asyncio.gather(holder, follower)
    assert entered == [0]
    assert admission.running == 0


async def test_an_exception_in_the_body_frees_the_place():
    admission = Admission(1)
    with pytest.raises(ValueError, match="no"):
        async with admission.permit():
            raise ValueError("no")
    assert admission.running == 0


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self):
        return self.now

    def advance(self, by_s):
        self.now += by_s


def test_a_rate_lets_a_burst_begin_and_then_one_at_a_time():
    clock = Clock()
    rate = RateLimit(2, burst=3, clock=clock)
    for _ in range(3):
        assert rate.wait_s() == 0
        rate.take()
    assert rate.wait_s() == 0.5
    clock.now = 0.5
    assert rate.wait_s() == 0
    rate.take()
    clock.now = 100
    begun = 0
    while not rate.wait_s():
        rate.take()
        begun += 1
    assert begun == 3


def test_a_steady_stream_just_under_the_rate_is_never_held_up():
    clock = Clock()
    rate = RateLimit(3, burst=1, clock=clock)
    for number in range(2000):
        clock.now = number / 2.99
        assert rate.wait_s() == 0
        rate.take()


async def test_who_is_over_the_rate_waits_for_a_start_and_not_only_for_a_place():
    clock = Clock()
    admission = Admission(5, queue_size=5, rate=RateLimit(1000, burst=1, clock=clock))
    entered, release = [], asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(hold(admission, release, entered))
        await settle()
        assert (len(entered), admission.waiting) == (1, 2)
        for begun in (2, 3):
            clock.now += 0.001
            await until(lambda begun=begun: len(entered) >= begun)
            assert admission.waiting == 3 - begun
        release.set()
    assert admission.running == 0


async def test_without_a_queue_who_is_over_the_rate_is_told_at_once():
    admission = Admission(1, queue_size=0, rate=RateLimit(1, burst=1, clock=Clock()))
    async with admission.permit():
        pass
    with pytest.raises(Overloaded) as caught:
        async with admission.permit():
            pass
    assert (caught.value.code, caught.value.retry_after_s) == ("admission_queue_full", 2)


async def test_who_comes_while_others_wait_waits_behind_them():
    clock = Clock()
    admission = Admission(0, queue_size=5, rate=RateLimit(1000, burst=1, clock=clock))
    order, release = [], asyncio.Event()

    async def numbered(number):
        async with admission.permit():
            order.append(number)
            await release.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(numbered(number))
            await settle()
        # Starts are free now, but the timer has not rung: the fourth must not overtake.
        clock.now += 0.010
        group.create_task(numbered(3))
        await until(lambda: order and (clock.advance(0.001) or len(order) >= 2))
        assert order[:2] == [0, 1]

        def all_in():
            clock.now += 0.001
            return len(order) == 4

        await until(all_in)
        release.set()
    assert order == [0, 1, 2, 3]
