"""Admission: so many run, so many wait, first come first served, and every exit frees its place."""

import asyncio

import pytest

from smg.errors import Overloaded, WorkerUnavailable
from smg.pipelines.admission import Admission


async def hold(admission, release, entered=None):
    async with admission.permit():
        if entered is not None:
            entered.append(len(entered))
        await release.wait()


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
