"""A router as a process of its own, ended in ways that leave it no time: engines drop what it has started."""

import asyncio
import os
import signal

import pytest

from benchmarks.faults.chaos import chat
from benchmarks.faults.client import connected, request_bytes
from benchmarks.faults.fleet import start_gateway
from benchmarks.gateway.children import Children


@pytest.fixture
def hang_up_handled():
    """Children start with a hang-up's usual meaning, also where nohup has these tests ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - states of another process
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ((signal.SIGKILL,), -signal.SIGKILL),
        ((signal.SIGTERM, signal.SIGTERM), 128 + signal.SIGTERM),
        ((signal.SIGHUP, signal.SIGHUP), 128 + signal.SIGHUP),
    ],
    ids=["killed", "told twice", "hung up twice"],
)
async def test_an_engine_drops_what_its_router_has_started(
    echo_worker, tmp_path, signals, status, hang_up_handled
):
    url = await echo_worker()
    load = echo_worker.servers[url].engine.load
    with Children(tmp_path, tmp_path / "log") as children:
        gateway, port = await asyncio.to_thread(start_gateway, children, [url], log_level="info")
        async with connected(port) as (reader, writer):
            writer.write(request_bytes(chat("[[hang]]", "m")))
            await reader.readuntil(b"data: ")
            assert load().running == 1
            for number in signals:
                os.kill(gateway.pid, number)
                if len(signals) > 1:
                    # A second one that came before the first was handled would be one and the same.
                    await until(lambda: "draining" in gateway.log_tail() or gateway.status is not None)
            await until(lambda: gateway.status is not None)
            await until(lambda: load().running == 0)
        assert gateway.status == status
