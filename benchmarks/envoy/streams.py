"""Measures many open streams through Envoy: memory of each on both sides, and how soon the engine knows that one has left.

    python -m benchmarks.envoy.streams [--streams 1000] [--rounds 50]

The engine runs in this process, so that its state can be looked at; gateway and Envoy (deploy/envoy/edge.yaml) are
processes of their own. Each stream gets a token a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import time
from typing import TYPE_CHECKING

import uvloop

from benchmarks.envoy.rig import BUILD, DROPPED_VARIABLES, ROOT, Envoy, Gateway, ours
from benchmarks.faults.client import Quantiles, connected, request_bytes
from benchmarks.gateway.children import Children, free_port
from benchmarks.gateway.load import HOST
from benchmarks.gateway.machine import memory_mb
from benchmarks.gateway.tokenizer import ensure_tokenizer
from servicers.base import EngineOptions
from servicers.echo import create_engine
from servicers.serve import start_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.base import Engine

STREAM = {
    "model": "m",
    "stream": True,
    "messages": [{"role": "user", "content": "[[len:100000]][[chunk:1]][[delay:1000]]"}],
}
# A stream open: a socket here, one each side of Envoy's.
_SPARE_FILES = 500


async def _open(port: int, stack: contextlib.AsyncExitStack) -> None:
    """A stream whose first event has come, and whose later ones are read."""
    reader, writer = await stack.enter_async_context(connected(port))
    writer.write(request_bytes(STREAM))
    await reader.readuntil(b'"content":"')

    async def read() -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass

    reading = asyncio.ensure_future(read())
    stack.callback(reading.cancel)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a state of an engine, which has no event for it
        await asyncio.sleep(0.0002)


async def _open_many(port: int, count: int, stack: contextlib.AsyncExitStack) -> None:
    for begin in range(0, count, 50):
        await asyncio.gather(*(_open(port, stack) for _ in range(min(50, count - begin))))


async def _through(
    name: str, port: int, pids: dict[str, int], engine: Engine, count: int, rounds: int
) -> None:
    """Print the line of one way."""

    def running() -> int:
        return engine.load().running

    async with contextlib.AsyncExitStack() as warm:
        await _open_many(port, 100, warm)
    await _until(lambda: running() == 0)
    before = {each: memory_mb(pid) for each, pid in pids.items()}
    times = Quantiles()
    async with contextlib.AsyncExitStack() as stack:
        await _open_many(port, count, stack)
        await asyncio.sleep(2)
        after = {each: memory_mb(pid) for each, pid in pids.items()}
        for _ in range(rounds):
            one = contextlib.AsyncExitStack()
            await _open(port, one)
            await _until(lambda: running() == count + 1)
            started = time.perf_counter()
            leaving = asyncio.ensure_future(one.aclose())
            await _until(lambda: running() == count)
            times.add(time.perf_counter() - started)
            await leaving
        started = time.perf_counter()
    await _until(lambda: running() == 0)
    all_gone = time.perf_counter() - started
    sizes = ", ".join(
        f"{each} {(after[each] - before[each]) * 1e3 / count:.0f} kB (to {after[each]:.0f} MB)"
        for each in pids
    )
    print(
        f"{name}: {count} streams: each {sizes}; a client's close reaches the engine in"
        f" p50 {times[0.5] * 1e3:.1f} ms, p99 {times[0.99] * 1e3:.1f} ms, max {times[1.0] * 1e3:.1f} ms;"
        f" all of them in {all_gone * 1e3:.0f} ms"
    )


async def measure(count: int, rounds: int) -> None:
    """Print a line for the gateway's own port, and one for Envoy before it."""
    wanted = 2 * count + _SPARE_FILES
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(wanted, 4096), most), most))
    tokenizer = ensure_tokenizer(BUILD / "tokenizer")
    engine = create_engine(
        EngineOptions(model_paths=(str(tokenizer),), model_ids=("m",), max_running=2 * count)
    )
    server = await start_server(engine, host=HOST)
    with Children(ROOT, BUILD / "envoy", DROPPED_VARIABLES) as children:
        target = server.url.removeprefix("grpc://")
        gateway = Gateway(children, "gateway", HOST, [target], free_port(), free_port())
        await asyncio.to_thread(gateway.start)
        edge = Envoy(children, "edge", ours("edge.yaml", {"gateway": [(HOST, gateway.grpc_port)]}), HOST)
        await asyncio.to_thread(edge.start)
        pids = {"gateway": gateway.pid}
        await _through("the gateway's own port", gateway.port, pids, engine, count, rounds)
        pids["envoy"] = edge.pid
        await _through("Envoy (edge.yaml)", edge.ports["http"], pids, engine, count, rounds)
    await server.stop(0.0)


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    uvloop.run(measure(asked.streams, asked.rounds))


if __name__ == "__main__":
    main()
