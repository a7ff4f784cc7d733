"""A fleet on several machines, each a loopback address: whichever part is killed, the rest goes on."""

import asyncio

import pytest
import pytest_asyncio

from benchmarks.envoy.machines import Machines, Seen, body, clients

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machines(tokenizer_dir, tmp_path_factory):
    async with Machines(tokenizer_dir, tmp_path_factory.mktemp("machines"), step_s=0.004) as machines:
        await machines.whole_again()
        yield machines


async def under_load(machines, part, then=lambda: asyncio.sleep(0)):
    """What eight clients see while a part is killed, and until each has had answers after that."""
    seen, is_over = Seen(), asyncio.Event()
    load = asyncio.create_task(clients(machines, 8, seen, is_over, tokens=16))
    while seen.whole < 8:  # noqa: ASYNC110 - counted by tasks
        await asyncio.sleep(0.01)
    await asyncio.to_thread(part.kill)
    await then()
    whole = seen.whole
    while seen.whole < whole + 16:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.01)
    is_over.set()
    await load
    return seen


async def test_an_engine_that_is_killed_is_noticed_by_nobody(machines):
    seen = await under_load(machines, machines.engines[0])
    assert seen.failed == 0


async def test_a_gateway_that_is_killed_is_left_to_the_other(machines):
    """Answers that it was giving end unfinished; whatever comes later is answered."""
    await under_load(machines, machines.gateways[0])
    for number in range(8):
        assert (await machines.ask(body(number, 4))).is_whole


async def test_an_envoy_that_is_killed_is_back_with_its_endpoints(machines):
    async def start_again():
        await asyncio.to_thread(machines.envoy.start)

    await under_load(machines, machines.envoy, start_again)
    for number in range(8):
        assert (await machines.ask(body(number, 4))).is_whole
