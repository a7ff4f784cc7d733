"""Measures how soon Envoy follows what a router knows: gateways and engines that come, are drained, and an outage.

    python -m benchmarks.envoy.endpoints [--rounds 10]

Engines and routers run in this process, Envoy (deploy/envoy/eds.yaml) in its own. Times are from the moment at which the
router knows (a worker is added or drained, a gateway listens or says that it stops) to the first request that the new one
gets, or the last that the old one gets; requests come all the time, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import httpx
import uvloop

from benchmarks.envoy.rig import BUILD, ours
from benchmarks.faults.client import Quantiles
from benchmarks.gateway.load import HOST
from benchmarks.gateway.tokenizer import ensure_tokenizer
from servicers.base import EngineOptions
from servicers.echo import create_engine
from servicers.serve import start_server
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc
from tests.integration.running_envoy import address, running_envoy
from tests.integration.running_router import running_router

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from servicers.serve import RunningServer

# How long the last request is waited for.
_QUIET_S = 1.0


class Watch:
    """Asks one thing all the time and keeps when each answer came, and whose it was.

    Attributes:
        answers: (when it was asked for, who answered; empty for a failure).
    """

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self.answers: list[tuple[float, str]] = []

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            asked = time.perf_counter()
            try:
                who = await self._ask()
            except (httpx.HTTPError, OSError, RuntimeError):
                who = ""
            self.answers.append((asked, who))
            await asyncio.sleep(0.001)

    async def first(self, who: str, since: float) -> float:
        """Seconds until somebody answers."""
        while not any(answered == who and asked >= since for asked, answered in self.answers):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return next(a for a, answered in self.answers if answered == who and a >= since) - since

    async def last(self, who: str, since: float) -> float:
        """Seconds until somebody answers no more."""
        await asyncio.sleep(_QUIET_S)
        return max((a - since for a, answered in self.answers if answered == who and a >= since), default=0.0)

    def failures(self, since: float) -> int:
        """Answers that were none."""
        return sum(not answered for asked, answered in self.answers if asked >= since)


async def _engine(tokenizer: Path, port: int = 0) -> RunningServer:
    options = EngineOptions(model_paths=(str(tokenizer),), model_ids=("m",))
    return await start_server(create_engine(options), host=HOST, port=port)


def _told(what: str, times: Quantiles) -> None:
    print(
        f"{what}: p50 {times[0.5] * 1e3:.0f} ms, max {times[1.0] * 1e3:.0f} ms ({len(times.values)} rounds)",
        flush=True,
    )


async def measure(rounds: int) -> None:
    """Print a line for each change."""
    tokenizer = ensure_tokenizer(BUILD / "tokenizer")
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engines = [await _engine(tokenizer) for _ in range(2)]
        extra = await _engine(tokenizer)
        gateways = [await enter(running_router(engine.url)) for engine in engines]
        spare = await _gateway(extra.url)
        targets = [f"grpc://{each.target}" for each in (*gateways, spare[0])]
        mesh = {"endpoint_discovery": True, "endpoint_routers": targets}
        control, control_life = await _gateway(*(each.url for each in engines), mesh=mesh)
        found = ours("eds.yaml", {"endpoints": [address(control.target)]})
        ports = await enter(running_envoy(found, Path(tempfile.mkdtemp(prefix="endpoints"))))
        client = await enter(httpx.AsyncClient(base_url=f"http://{HOST}:{ports['http']}", timeout=10))
        channel = await enter(grpc.aio.insecure_channel(f"{HOST}:{ports['engines']}"))
        stub: Any = engine_pb2_grpc.EngineServiceStub(channel)

        async def ask_gateway() -> str:
            return (await client.get("/workers")).json()["workers"][0]["url"]

        async def ask_engine() -> str:
            try:
                return (await stub.Describe(card_pb2.DescribeRequest(), timeout=10)).instance_id
            except grpc.aio.AioRpcError as error:
                raise RuntimeError from error

        by_gateway, by_engine = Watch(ask_gateway), Watch(ask_engine)
        watching = [asyncio.ensure_future(each.run()) for each in (by_gateway, by_engine)]
        await by_gateway.first(extra.url, 0.0)
        joined, drained, gone, back = Quantiles(), Quantiles(), Quantiles(), Quantiles()
        async with grpc.aio.insecure_channel(extra.url.removeprefix("grpc://")) as direct:
            described: Any = engine_pb2_grpc.EngineServiceStub(direct)
            extra_id = (await described.Describe(card_pb2.DescribeRequest())).instance_id
        for _ in range(rounds):
            since = time.perf_counter()
            worker = control.router.registry.add(extra.url)
            joined.add(await by_engine.first(extra_id, since))
            since = time.perf_counter()
            control.router.registry.drain(worker.id, is_draining=True)
            drained.add(await by_engine.last(extra_id, since))
            control.router.registry.remove(worker.id)
            since = time.perf_counter()
            closing = asyncio.ensure_future(spare[1].aclose())
            gone.add(await by_gateway.last(extra.url, since))
            await closing
            port = address(spare[0].target)[1]
            spare = await _gateway(extra.url, grpc_port=port)
            since = time.perf_counter()
            back.add(await by_gateway.first(extra.url, since))
        _told("an engine that is added is used after", joined)
        _told("an engine that is drained is used for", drained)
        _told("a gateway that stops is used for", gone)
        _told("a gateway that has started is used after", back)
        since = time.perf_counter()
        await control_life.aclose()
        await asyncio.sleep(5)
        print(
            f"without anybody to ask for 5 s: {by_gateway.failures(since)} of"
            f" {sum(a >= since for a, _ in by_gateway.answers)} requests failed,"
            f" {by_engine.failures(since)} of {sum(a >= since for a, _ in by_engine.answers)} calls"
        )
        port = address(control.target)[1]
        control, control_life = await _gateway(*(each.url for each in engines), mesh=mesh, grpc_port=port)
        since = time.perf_counter()
        control.router.registry.add(extra.url)
        print(
            f"after it is back, an engine that is added is used after {await by_engine.first(extra_id, since) * 1e3:.0f} ms"
        )
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await control_life.aclose()
        await spare[1].aclose()
    for engine in (*engines, extra):
        await engine.stop(0.0)


async def _gateway(*urls: str, **settings: Any) -> tuple[Any, contextlib.AsyncExitStack]:
    """A gateway, and how to end it."""
    life = contextlib.AsyncExitStack()
    return await life.enter_async_context(running_router(*urls, shutdown_delay_secs=0.5, **settings)), life


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy.endpoints", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    uvloop.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
