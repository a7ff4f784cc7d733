"""Sends many requests of which many are broken off, and looks whether anything is left: memory, sockets, permits.

    python -m benchmarks.faults.soak [--requests 20000]

The gateway is `smg launch` before one echo engine, both processes of their own. Its memory, its open files and what it
counts as running are read after every tenth of the requests, when all of them have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

from benchmarks.faults.client import ask, connected, request_bytes
from benchmarks.faults.fleet import EngineProcess, echo_flags, metric, start_gateway
from benchmarks.gateway.children import Children
from benchmarks.gateway.machine import PROC, parse_memory_kb
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
IN_FLIGHT = 64
LEFT = ("smg_requests_inflight", "smg_worker_inflight_requests", "smg_worker_running_sequences")
# Share of growth that is no leak: allocators keep what they have had.
ALLOWED_GROWTH = 0.1


class State(NamedTuple):
    """What a gateway holds when nothing runs."""

    requests: int
    rss_kb: int
    files: int
    running: float


def _body(number: int, text: str, *, is_stream: bool) -> dict[str, Any]:
    content = f"question {number} {'about this and that ' * (number % 20)}{text}"
    return {"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": content}]}


async def _whole(port: int, number: int) -> None:
    reply = await ask(port, _body(number, "[[len:6]]", is_stream=False))
    assert reply.status == 200, reply


async def _stream(port: int, number: int) -> None:
    reply = await ask(port, _body(number, "[[len:12]]", is_stream=True))
    assert reply.is_whole, reply


async def _refused(port: int, number: int) -> None:
    reply = await ask(port, {**_body(number, "", is_stream=False), "temperature": -1})
    assert reply.status == 400, reply


async def _failed(port: int, number: int) -> None:
    reply = await ask(port, _body(number, "[[errorafter:2:INTERNAL:late]][[len:9]]", is_stream=True))
    assert reply.status == 200, reply


async def _leaves(port: int, number: int) -> None:
    """Go before the first byte, or after some; sometimes in the middle of the request."""
    raw = request_bytes(_body(number, "[[hang]]", is_stream=number % 3 > 0))
    async with connected(port) as (reader, writer):
        writer.write(raw if number % 5 else raw[: len(raw) // 2])
        await writer.drain()
        if number % 2 and number % 3 and number % 5:
            await reader.read(300)
        else:
            await asyncio.sleep(0.002)


KINDS = (_whole, _stream, _leaves, _stream, _leaves, _whole, _refused, _leaves, _failed, _stream)


async def soak(port: int, count: int, first: int = 0) -> None:
    """Send so many requests, of all kinds, IN_FLIGHT at a time. Raises AssertionError at a wrong answer."""
    chance = random.Random(first)
    numbers = iter(range(first, first + count))

    async def work() -> None:
        for number in numbers:
            await chance.choice(KINDS)(port, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


async def settled(running: Callable[[], float], limit_s: float = 15.0) -> float:
    """Wait until nothing runs. Returns what still did when the time was up."""
    deadline = time.monotonic() + limit_s
    while (left := await asyncio.to_thread(running)) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.1)
    return left


async def _run(count: int) -> list[State]:
    with Children(ROOT, BUILD / "soak") as children:
        flags = echo_flags(ensure_tokenizer(BUILD / "tokenizer"), 0.0, "--max-running", "512")
        engine = EngineProcess(children, "engine", flags)
        engine.wait_ready()
        # The cache of prompts seen before is a bound of its own: a small one is full before the measuring begins.
        gateway, port = start_gateway(children, [engine.url], "--tokenizer-cache-bytes", "1048576")
        states: list[State] = []
        part = count // 10
        for number in range(10):
            await soak(port, part, number * part)
            running = await settled(lambda: sum(metric(port, name) for name in LEFT))
            state = State((number + 1) * part, rss_kb(gateway.pid), open_files(gateway.pid), running)
            print(
                f"{state.requests:7} requests: {state.rss_kb / 1024:6.1f} MiB, {state.files:4} files, {running:g} running"
            )
            states.append(state)
        gateway.check_alive()
    return states


def rss_kb(pid: int) -> int:
    """Memory of a process, in kB."""
    return parse_memory_kb((PROC / str(pid) / "status").read_text(), "VmRSS")


def open_files(pid: int) -> int:
    """Open files of a process, sockets included."""
    return len(list((PROC / str(pid) / "fd").iterdir()))


def main() -> None:
    """Run once, and fail if something has grown or is left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    started = time.monotonic()
    states = uvloop.run(_run(parser.parse_args().requests))
    warm, last = states[1], states[-1]
    growth = last.rss_kb / warm.rss_kb - 1
    print(
        f"memory from {warm.requests} to {last.requests} requests: {growth:+.1%}; {time.monotonic() - started:.0f} s"
    )
    assert growth < ALLOWED_GROWTH
    assert last.files <= warm.files + 2
    assert last.running == 0


if __name__ == "__main__":
    main()
