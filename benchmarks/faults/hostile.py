"""Measures what badly behaved clients cost everybody else.

    python -m benchmarks.faults.hostile [--idle 5000] [--only NAME]

One gateway before one echo engine, both processes of their own. A steady client asks for short streams at a fixed rate;
its times to the last byte are told for each load, and beside them those without it, taken before and after it in the same
run: a machine that others use is not the same from one minute to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.faults.client import CHAT, Quantiles, ask, connected, request_bytes
from benchmarks.faults.fleet import EngineProcess, echo_flags, metric, start_gateway
from benchmarks.faults.soak import open_files, rss_kb
from benchmarks.gateway.children import ChildFailed, Children
from benchmarks.gateway.load import HOST
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
RATE = 40.0
LOAD_S = 8.0
# Without a load, before it and after it each.
BASE_S = 4.0
SPARE_FILES = 1000
# Without an end, 4 tokens each 50 ms.
LONG_STREAM = "[[len:20000]][[chunk:4]][[delay:50]]"


def _body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}], **fields}


async def _probe(port: int, seconds: float) -> Quantiles:
    """Ask at the fixed rate, whatever becomes of the answers. Raises AssertionError at a wrong one."""
    times = Quantiles()

    async def once() -> None:
        reply = await ask(port, _body("[[len:8]]"))
        assert reply.is_whole, reply
        times.add(reply.total_s)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * RATE)):
            await asyncio.sleep(started + number / RATE - time.perf_counter())
            group.create_task(once())
    return times


async def _probe_elsewhere(port: int, seconds: float = LOAD_S) -> Quantiles:
    """The same in a process of its own: this one is busy with being hostile. Raises ChildFailed."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.faults.hostile",
        "--probe",
        str(port),
        "--seconds",
        str(seconds),
    ]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    if process.returncode:
        raise ChildFailed(f"the steady client failed with status {process.returncode}")
    times = Quantiles()
    times.values = json.loads(told)
    return times


@contextlib.asynccontextmanager
async def _nothing(port: int) -> AsyncGenerator[str, None]:
    yield f"port {port}"


@contextlib.asynccontextmanager
async def _running(*clients: Any) -> AsyncGenerator[list[asyncio.Task[Any]], None]:
    tasks = [asyncio.ensure_future(client) for client in clients]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _readers(port: int) -> AsyncGenerator[str, None]:
    """200 clients with long streams who read them."""

    async def read() -> None:
        async with connected(port) as (reader, writer):
            writer.write(request_bytes(_body(LONG_STREAM)))
            while await reader.read(65536):
                pass

    async with _running(*(read() for _ in range(200))):
        yield "200 clients that read their streams"


@contextlib.asynccontextmanager
async def _slow_readers(port: int) -> AsyncGenerator[str, None]:
    """The same number of clients who read a byte a second."""

    async def read() -> None:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        with raw, contextlib.suppress(ConnectionError):
            await loop.sock_connect(raw, (HOST, port))
            await loop.sock_sendall(raw, request_bytes(_body(LONG_STREAM)))
            while await loop.sock_recv(raw, 1):  # noqa: ASYNC110 - this is how slowly it reads
                await asyncio.sleep(1)

    async with _running(*(read() for _ in range(200))):
        yield "200 clients that read 1 byte/s"


@contextlib.asynccontextmanager
async def _slowloris(port: int) -> AsyncGenerator[str, None]:
    """1000 clients who never end their heads."""

    async def drip() -> None:
        with contextlib.suppress(ConnectionError):
            async with connected(port) as (_, writer):
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: ")
                while True:
                    writer.write(b"a")
                    await asyncio.sleep(0.5)

    async with _running(*(drip() for _ in range(1000))):
        yield "1000 heads at 2 bytes/s"


@contextlib.asynccontextmanager
async def _large_bodies(port: int, megabytes: int = 100) -> AsyncGenerator[str, None]:
    """Two clients who send bodies of so many MB one after the other: a prompt that no model takes."""
    content = "all work and no play " * (megabytes * 1_000_000 // 21)
    raw = request_bytes({"model": "m", "messages": [{"role": "user", "content": content}]})
    statuses: list[bytes] = []

    async def send() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                async with connected(port) as (reader, writer):
                    writer.write(raw)
                    statuses.append((await reader.read(65536))[9:12])

    async with _running(send(), send()):
        yield f"2 clients with bodies of {megabytes} MB"
    print(f"    answers to them: {len(statuses)}, {sorted(set(statuses))}")


@contextlib.asynccontextmanager
async def _parts_bodies(port: int) -> AsyncGenerator[str, None]:
    """One client whose body of 14 MB is many small messages."""
    messages = [{"role": "user", "content": "hi"}] * 400_000
    raw = request_bytes({"model": "m", "messages": messages})
    statuses: list[bytes] = []

    async def send() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                async with connected(port) as (reader, writer):
                    writer.write(raw)
                    statuses.append((await reader.read(65536))[9:12])

    async with _running(send()):
        yield f"1 client with 400,000 messages, {len(raw) // 1_000_000} MB"
    print(f"    answers to them: {len(statuses)}, {sorted(set(statuses))}")


@contextlib.asynccontextmanager
async def _large_heads(port: int) -> AsyncGenerator[str, None]:
    """Eight clients who send heads of 10 kB as fast as they are answered, and eight with ten times that."""

    async def send(size: int) -> None:
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nx-long: %b\r\ncontent-length: 2\r\n\r\n{}"
        while True:
            with contextlib.suppress(ConnectionError):
                async with connected(port) as (reader, writer):
                    writer.write(head % (CHAT.encode(), b"a" * size))
                    assert (await reader.read(65536))[9:12] in (b"400", b"431", b"")

    async with _running(*(send(size) for size in [10_000] * 8 + [100_000] * 8)):
        yield "16 clients with heads of 10 kB and 100 kB"


LOADS: dict[str, Callable[[int], contextlib.AbstractAsyncContextManager[str]]] = {
    "nothing": _nothing,
    "readers": _readers,
    "slow_readers": _slow_readers,
    "slowloris": _slowloris,
    "large_heads": _large_heads,
    "large_bodies": _large_bodies,
    "long_bodies": lambda port: _large_bodies(port, 15),
    "many_messages": _parts_bodies,
}


async def _idle_streams(port: int, pid: int, count: int) -> str:
    """Open streams that have begun and say nothing. Returns what they cost."""
    alone = await _probe_elsewhere(port, BASE_S)
    before_kb, files = rss_kb(pid), open_files(pid)
    raw = request_bytes(_body("[[say:x]][[nocomplete]]"))
    streams: list[asyncio.StreamWriter] = []
    gate = asyncio.Semaphore(200)

    async def begin() -> None:
        async with gate:
            reader, writer = await asyncio.open_connection(HOST, port, limit=2048)
            streams.append(writer)
            writer.write(raw)
            await reader.readuntil(b'"content":"x"')

    try:
        await asyncio.gather(*(begin() for _ in range(count)))
        each = (rss_kb(pid) - before_kb) / count
        times = await _probe_elsewhere(port)
        line = _line(f"{count} idle open streams", times)
        opened = open_files(pid) - files
    finally:
        for writer in streams:
            writer.close()
    await asyncio.sleep(1.0)
    alone.values += (await _probe_elsewhere(port, BASE_S)).values
    return f"{line}\n{_ratio(alone, times)}\n    {each:.1f} kB each in the gateway, {opened} sockets"


def _line(what: str, times: Quantiles) -> str:
    p50, p99, worst = (times[share] * 1e3 for share in (0.5, 0.99, 1.0))
    return f"{what:45} p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {worst:7.1f} ms"


def _ratio(alone: Quantiles, times: Quantiles) -> str:
    """How much longer the slowest in a hundred waits than without the load."""
    p99, without = times[0.99] * 1e3, alone[0.99] * 1e3
    return f"    p99 of others: {p99:.1f} ms with, {without:.1f} ms without: ratio {p99 / without:.2f}"


async def _run(idle: int, only: str | None) -> None:
    with Children(ROOT, BUILD / "hostile") as children:
        flags = echo_flags(ensure_tokenizer(BUILD / "tokenizer"), 0.005, "--max-running", str(idle + 1000))
        engine = EngineProcess(children, "engine", flags)
        engine.wait_ready()
        gateway, port = start_gateway(children, [engine.url], "--max-concurrent-requests", "0")
        await _probe(port, 1.0)
        if only in (None, "idle"):
            print(await _idle_streams(port, gateway.pid, idle), flush=True)
        for name, load in LOADS.items():
            if only not in (None, name):
                continue
            before = await _probe_elsewhere(port, BASE_S)
            async with load(port) as what:
                await asyncio.sleep(1.0)
                times = await _probe_elsewhere(port)
            print(_line(what, times), flush=True)
            await asyncio.sleep(1.0)
            before.values += (await _probe_elsewhere(port, BASE_S)).values
            print(_ratio(before, times), flush=True)
        await asyncio.sleep(2.0)
        left = await asyncio.to_thread(metric, port, "smg_requests_inflight")
        slow = await asyncio.to_thread(metric, port, "smg_slow_reader_aborts_total")
        print(
            f"left running: {left:g}; slow readers dropped: {slow:g}; gateway {rss_kb(gateway.pid) / 1024:.0f} MiB"
        )
        gateway.check_alive()


def main() -> None:
    """Run every load once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.hostile", description=__doc__)
    parser.add_argument("--idle", type=int, default=5000, help="idle open streams")
    parser.add_argument("--only", choices=[*LOADS, "idle"], help="one load alone")
    parser.add_argument("--probe", type=int, metavar="PORT", help="be the steady client, and print its times")
    parser.add_argument("--seconds", type=float, default=LOAD_S, help="how long the steady client asks")
    asked = parser.parse_args()
    if asked.probe:
        print(json.dumps(uvloop.run(_probe(asked.probe, asked.seconds)).values))
        return
    # Each stream is a socket here and one in the gateway, which inherits the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, asked.idle + SPARE_FILES), hard))
    uvloop.run(_run(asked.idle, asked.only))


if __name__ == "__main__":
    main()
