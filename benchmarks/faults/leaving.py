"""Measures how soon the engine knows that a client has left: on every way in, at every stage of an answer.

    python -m benchmarks.faults.leaving [--rounds 20]

Router and engine run in this process on uvloop, as they do in earnest, over real sockets. The time is from the client's
close to the moment at which nothing is left: no permit, no place in the queue, no sequence on the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import uvloop

from benchmarks.faults.client import Quantiles, connected, request_bytes
from benchmarks.gateway.tokenizer import ensure_tokenizer
from servicers.base import EngineOptions
from servicers.echo import create_engine
from servicers.serve import start_server
from smg.server import Router
from smg.settings import AdmissionSettings, ListenerSettings, RouterSettings, WorkerSettings
from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from smg.server import RouterAddresses

ROOT = Path(__file__).resolve().parents[2]
RUNS, QUIET = "[[hang]]", "[[hang0:600000]]"


def body(text: str, *, is_stream: bool) -> dict[str, Any]:
    """A chat that does not end by itself."""
    return {"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": text}]}


@contextlib.asynccontextmanager
async def over_http(port: int, text: str, *, is_stream: bool) -> AsyncGenerator[None]:
    """A request whose client leaves at the end."""
    async with connected(port) as (_, writer):
        writer.write(request_bytes(body(text, is_stream=is_stream)))
        await writer.drain()
        yield


@contextlib.asynccontextmanager
async def over_grpc(port: int, text: str, *, is_stream: bool) -> AsyncGenerator[None]:
    """A call that is cancelled at the end."""
    chat = chat_pb2.ChatRequest(model="m", stream=is_stream)
    chat.messages.add(role="user", text=text)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = chat_pb2_grpc.ChatServiceStub(channel)
        if is_stream:
            call = stub.StreamChatCompletion(chat_pb2.StreamChatCompletionRequest(chat=chat))
        else:
            call = stub.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat))
        waiting = asyncio.ensure_future(call.code())
        yield
        call.cancel()
        await waiting


async def until(condition: Callable[[], bool]) -> None:
    """Look all the time."""
    while not condition():  # noqa: ASYNC110 - states of an engine, which has no event for them
        await asyncio.sleep(0)


async def measure(rounds: int) -> None:
    """Print a line per way and stage."""
    tokenizer = ensure_tokenizer(ROOT / "build" / "bench" / "tokenizer")
    engine = create_engine(EngineOptions(model_paths=(str(tokenizer),), model_ids=("m",)))
    server = await start_server(engine, host="127.0.0.1")
    settings = RouterSettings(
        listener=ListenerSettings(host="127.0.0.1", port=0, grpc_port=0),
        workers=WorkerSettings(worker_urls=(server.url,)),
        admission=AdmissionSettings(max_concurrent_requests=2),
    )
    router, stop = Router(settings), asyncio.Event()
    ready: asyncio.Future[RouterAddresses] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(router.run(ready.set_result, stop))
    addresses = await ready
    await router.registry.wait_ready(20)
    admission = router.admission
    for way, port, come in (
        ("HTTP", addresses.port, over_http),
        ("gRPC", addresses.grpc_port, over_grpc),
    ):
        for stage, text in (
            ("before the first token", QUIET),
            ("while tokens come", RUNS),
            ("queued", QUIET),
        ):
            for is_stream in (False, True):
                times = Quantiles()
                for _ in range(rounds):
                    async with contextlib.AsyncExitStack() as others:
                        if stage == "queued":
                            for _ in range(2):
                                await others.enter_async_context(
                                    over_http(addresses.port, QUIET, is_stream=False)
                                )
                            await until(lambda: engine.load().running == 2)
                            there = lambda: admission.waiting == 1  # noqa: E731 - two of a kind
                            gone = lambda: admission.waiting == 0  # noqa: E731
                        else:
                            there = lambda: engine.load().running == 1  # noqa: E731
                            gone = lambda: not (engine.load().running or admission.running)  # noqa: E731
                        async with come(port, text, is_stream=is_stream):
                            await until(there)
                            await asyncio.sleep(0.03)
                            started = time.perf_counter()
                            leaving = asyncio.get_running_loop().create_future()
                            watch = asyncio.ensure_future(_clock(gone, started, leaving))
                        await watch
                        times.add(leaving.result())
                    await until(lambda: not (engine.load().running or admission.running))
                form = "stream" if is_stream else "whole"
                print(
                    f"{way:5} {form:7} {stage:23} p50 {times[0.5] * 1e3:5.1f} ms, max {times[1.0] * 1e3:5.1f} ms"
                )
    stop.set()
    await serving
    await server.stop(0.0)


async def _clock(gone: Callable[[], bool], started: float, result: asyncio.Future[float]) -> None:
    await until(gone)
    result.set_result(time.perf_counter() - started)


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.leaving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    uvloop.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
