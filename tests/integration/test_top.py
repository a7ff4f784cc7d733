"""smg top: what it shows is what the fleet does, over HTTP and over gRPC."""

import asyncio

import pytest

from smg.cli.main import main
from smg.cli.top.command import open_source
from smg.cli.top.sources import LookFailed
from tests.integration.running_router import running_router, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:x]][[hang]]"}], "stream": True}


@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_a_look_shows_each_worker(echo_worker, door):
    url = await echo_worker(step_seconds=0.01)
    async with running_router(url) as gateway:
        address = (
            f"http://127.0.0.1:{gateway.addresses.port}" if door == "http" else f"grpc://{gateway.target}"
        )
        source = open_source(address, "")
        async with gateway.http.stream("POST", "/v1/chat/completions", json=BODY) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await until(lambda: gateway.router.registry.workers()[0].load.running)
            await until(lambda: gateway.router.registry.workers()[0].load.steps)
            snapshot = await source.look()
        await source.close()
    (worker,) = snapshot.workers
    assert (worker.url, worker.state, worker.models) == (url, "ready", ("m",))
    assert (worker.inflight, worker.running) == (1, 1)
    assert worker.steps > 0
    assert (snapshot.totals is None) == (door == "grpc")
    if snapshot.totals is not None:
        assert snapshot.totals.running == 1


async def test_who_may_not_see_the_workers_sees_their_numbers(echo_worker):
    url = await echo_worker()
    async with running_router(url, callers={"api_key": "the-key-1"}) as gateway:
        http = f"http://127.0.0.1:{gateway.addresses.port}"
        for key, models in (("", ()), ("the-key-1", ("m",))):
            source = open_source(http, key)
            assert (await source.look()).workers[0].models == models
            await source.close()
        source = open_source(f"grpc://{gateway.target}", "")
        with pytest.raises(LookFailed, match="UNAUTHENTICATED"):
            await source.look()
        await source.close()


async def test_the_command_prints_once_for_a_pipe(echo_worker, capsys):
    url = await echo_worker()
    async with running_router(url) as gateway:
        for address in (f"http://127.0.0.1:{gateway.addresses.port}", f"grpc://{gateway.target}"):
            words = ["top", address, "--once", "--interval", "0.05"]
            asked = asyncio.ensure_future(asyncio.to_thread(main, words))
            assert await asked == 0
            told = capsys.readouterr().out
            assert "workers 1/1 ready" in told
            assert any(url in line and "ready" in line for line in told.splitlines())
            assert "\x1b" not in told
    assert await asyncio.to_thread(main, ["top", "http://127.0.0.1:1", "--once"]) == 1
    told = capsys.readouterr().err
    assert "no gateway answers" in told
    assert "smg doctor http" in told
    assert await asyncio.to_thread(main, ["top", "ftp://127.0.0.1:1"]) == 2
