"""Puts a bounded load on a gateway over loopback and measures what its processes spend on it.

A closed loop of keep-alive connections, one request in flight on each, or requests at a fixed rate. While it is
measured the generator only keeps what arrives; parsing and checking come after, so its own CPU use (reported
too) stays small.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import uvloop

from benchmarks.gateway.answers import HEAD_END, WrongAnswer, check_answer, split_head
from benchmarks.gateway.machine import Cpu, process_cpu, tree_cpu
from benchmarks.gateway.prompts import PromptKind, PromptWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOST = "127.0.0.1"
FIRST_TEXT = re.compile(rb'"content":\s*"[^"]')
LAST_CHUNK = b"0\r\n\r\n"
SETTLE_S = 0.05  # lets a gateway finish what it does after the last byte, inside the measured time
TIME_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load to put on a gateway."""

    port: int
    is_stream: bool
    concurrency: int  # connections, each with at most one request in flight
    tokens: int  # output tokens that every request asks for
    bodies: Sequence[bytes]  # one request each
    warm_bodies: Sequence[bytes] = ()  # sent first and not measured
    rate: float | None = None  # requests per second; None sends the next as soon as a connection is free
    expected_text: str | None = None  # what every answer must spell; None when the engine decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a load cost. Times of requests in milliseconds, in ascending order."""

    requests: int
    tokens: int  # output tokens of all requests together
    wall_s: float
    cpu: dict[str, Cpu]  # by name of the watched process
    generator_cpu: Cpu
    first_text_ms: list[float]  # from sending to the first text; whole time for a unary request
    content_events: int
    prompt_tokens: int
    answers: list[str] = field(repr=False)

    def first_text_quantile(self, share: float) -> float:
        """Quantile of the time to first text: 0.5 is the median."""
        return self.first_text_ms[min(int(len(self.first_text_ms) * share), len(self.first_text_ms) - 1)]


@dataclass(slots=True)
class Exchange:
    """One request and the bytes that answered it."""

    started: float
    done: asyncio.Future[None]
    raw: list[bytes] = field(default_factory=list[bytes])
    first_text_s: float | None = None
    total_s: float = 0.0


class Connection(asyncio.Protocol):
    """A keep-alive connection that finds the end of each answer and parses nothing else."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._exchange: Exchange | None = None
        self._is_head_complete = False
        self._missing: int | None = None  # bytes until the end; None for a chunked body
        self._tail = b""
        self._fault = ""  # why nothing more can be sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: connected."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: disconnected. An answer that had not ended fails."""
        self._fault = self._fault or f"connection closed by the gateway: {exc}"
        if self._exchange is not None and not self._exchange.done.done():
            self._exchange.done.set_exception(WrongAnswer(f"{self._fault}, in the middle of an answer"))

    def data_received(self, data: bytes) -> None:
        """Asyncio: bytes."""
        exchange = self._exchange
        if exchange is None:
            self._fault = f"bytes outside an answer: {data[:80]!r}"
            return
        exchange.raw.append(data)
        if exchange.first_text_s is None and FIRST_TEXT.search(data):
            exchange.first_text_s = time.perf_counter() - exchange.started
        if self._has_ended(data):
            exchange.total_s = time.perf_counter() - exchange.started
            self._exchange = None
            exchange.done.set_result(None)

    async def send(self, body: bytes) -> Exchange:
        """Send one request and wait for its whole answer. Raises WrongAnswer when the connection is not usable."""
        assert self._transport is not None
        self.check_clean()
        self._is_head_complete, self._missing, self._tail = False, None, b""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        message = head % (HOST.encode(), len(body)) + body
        self._exchange = exchange = Exchange(time.perf_counter(), asyncio.get_running_loop().create_future())
        self._transport.write(message)
        await exchange.done
        return exchange

    def check_clean(self) -> None:
        """Raise WrongAnswer if the connection has closed or brought bytes that nobody asked for."""
        if self._fault:
            raise WrongAnswer(self._fault)

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    def _has_ended(self, data: bytes) -> bool:
        if not self._is_head_complete:
            assert self._exchange is not None
            raw = b"".join(self._exchange.raw)
            if HEAD_END not in raw:
                return False
            self._is_head_complete = True
            _, headers, data = split_head(raw)
            length = headers.get(b"content-length")
            self._missing = int(length) if length is not None else None
        if self._missing is not None:
            self._missing -= len(data)
            return self._missing <= 0
        self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        return self._tail == LAST_CHUNK


async def put_load(load: Load, watched: Mapping[str, int]) -> Measurement:
    """Run one load and check every answer.

    Args:
        load: what to send where.
        watched: process ids by name; their CPU time is measured, with that of their descendants.

    Raises:
        WrongAnswer: any answer is incomplete or wrong.
        TimeoutError: it took more than TIME_LIMIT_S.
    """
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(Connection, HOST, load.port))[1] for _ in range(load.concurrency)
    ]
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            await _send_all(connections, load.warm_bodies, None)
            gc.collect()
            gc.disable()
            before = {name: tree_cpu(pid) for name, pid in watched.items()}
            own, start = process_cpu(os.getpid()), time.perf_counter()
            exchanges = await _send_all(connections, load.bodies, load.rate)
            wall_s = time.perf_counter() - start
            own = process_cpu(os.getpid()) - own
            await asyncio.sleep(SETTLE_S)
            cpu = {name: tree_cpu(pid) - before[name] for name, pid in watched.items()}
            for connection in connections:
                connection.check_clean()
    finally:
        gc.enable()
        for connection in connections:
            connection.close()
    return _measurement(load, exchanges, wall_s, cpu, own)


async def _send_all(
    connections: Sequence[Connection], bodies: Sequence[bytes], rate: float | None
) -> list[Exchange]:
    """Send all bodies, spread over the connections as they become free."""
    queue = list(enumerate(bodies))[::-1]
    exchanges: list[Exchange] = []
    start = time.perf_counter()

    async def drain(connection: Connection) -> None:
        while queue:
            number, body = queue.pop()
            if rate is not None:
                await asyncio.sleep(start + number / rate - time.perf_counter())
            exchanges.append(await connection.send(body))

    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(drain(connection))
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return exchanges


def _measurement(
    load: Load, exchanges: Sequence[Exchange], wall_s: float, cpu: dict[str, Cpu], own: Cpu
) -> Measurement:
    answers = [
        check_answer(b"".join(e.raw), is_stream=load.is_stream, tokens=load.tokens, text=load.expected_text)
        for e in exchanges
    ]
    if len(answers) != len(load.bodies):
        raise WrongAnswer(f"{len(answers)} answers to {len(load.bodies)} requests")
    return Measurement(
        requests=len(answers),
        tokens=len(answers) * load.tokens,
        wall_s=wall_s,
        cpu=cpu,
        generator_cpu=own,
        first_text_ms=sorted((e.first_text_s or e.total_s) * 1e3 for e in exchanges),
        content_events=sum(answer.content_events for answer in answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        answers=[answer.text for answer in answers],
    )


def main() -> None:
    """One load by hand, on a gateway that runs already."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway.load", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="the gateway's process")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="directory that the gateway's model uses"
    )
    parser.add_argument("--mode", choices=("stream", "unary"), default="stream")
    parser.add_argument("--prompt", choices=get_args(PromptKind), default="small")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rate", type=float, help="requests per second; as fast as answers come if left out")
    asked = parser.parse_args()
    bodies = PromptWriter(asked.tokenizer).bodies(
        asked.prompt, mode=asked.mode, tokens=asked.tokens, count=asked.requests, seed=str(os.getpid())
    )
    load = Load(
        port=asked.port,
        is_stream=asked.mode == "stream",
        concurrency=asked.concurrency,
        tokens=asked.tokens,
        bodies=bodies,
        rate=asked.rate,
    )
    done = uvloop.run(put_load(load, {"gateway": asked.pid}))
    cpu = done.cpu["gateway"]
    kernel = "?" if cpu.kernel_share is None else f"{cpu.kernel_share:.0%}"
    print(
        f"{cpu.total_s / done.tokens * 1e6:.1f} µs/token, {cpu.total_s / done.requests * 1e6:.0f} µs/request "
        f"(kernel {kernel}); first text p50 {done.first_text_quantile(0.5):.1f} ms, "
        f"p99 {done.first_text_quantile(0.99):.1f} ms; {done.content_events / done.tokens:.2f} texts per token; "
        f"wall {done.wall_s:.2f} s; generator {done.generator_cpu.total_s:.2f} s CPU"
    )


if __name__ == "__main__":
    main()
