"""Kills each part of a small fleet in turn under a bounded load, and tells what clients notice.

    python -m benchmarks.envoy.machines [--clients 24] [--phase-secs 4]

Several machines in one: every process has a loopback address of its own. Envoy (deploy/envoy/eds.yaml) stands before two
gateways, of which each uses all of three engines and tells Envoy of both. Prints the table of docs/operations.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import uvloop

from benchmarks.envoy.rig import BUILD, DROPPED_VARIABLES, ROOT, Engine, Envoy, Gateway, in_thread, ours
from benchmarks.faults.client import CHAT, Reply, read_reply, request_bytes
from benchmarks.gateway.children import Children, free_port
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from benchmarks.envoy.rig import Process

EDGE, GATEWAYS = "127.0.0.10", ("127.0.0.11", "127.0.0.12")
ENGINES = ("127.0.0.21", "127.0.0.22", "127.0.0.23")
STEP_S = 0.02
# Longest silence of an engine whose machine is gone without a word; one that is killed is noticed at once.
SILENCE_S = 2.0
# A client that could not connect waits a little, as SDKs do.
PAUSE_S = 0.05


class Machines:
    """The fleet. Enter it to start it; leaving ends every process."""

    def __init__(self, tokenizer: Path, logs: Path, step_s: float = STEP_S) -> None:
        self._children = Children(ROOT, logs, DROPPED_VARIABLES)
        self.engines = [
            Engine(self._children, f"engine{number}", host, tokenizer, step_s)
            for number, host in enumerate(ENGINES, 1)
        ]
        ports = [(host, free_port(), free_port()) for host in GATEWAYS]
        routers = [f"grpc://{host}:{grpc_port}" for host, _, grpc_port in ports]
        self.gateways = [
            Gateway(
                self._children, f"gateway{number}", host, [each.target for each in self.engines], port, grpc_port,
                "--worker-silence-secs", str(SILENCE_S), "--endpoint-discovery", "--endpoint-routers", *routers,
            )
            for number, (host, port, grpc_port) in enumerate(ports, 1)
        ]  # fmt: skip
        clusters = {"endpoints": [(each.host, each.grpc_port) for each in self.gateways]}
        self.envoy = Envoy(self._children, "machines-envoy", ours("eds.yaml", clusters), EDGE)

    async def __aenter__(self) -> Self:
        """Start all, the first things first."""
        self._children.__enter__()
        try:
            await in_thread(*(each.start for each in self.engines))
            await in_thread(*(each.start for each in self.gateways))
            await in_thread(self.envoy.start)
        except BaseException:
            await asyncio.to_thread(self._children.stop_all)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all."""
        await asyncio.to_thread(self._children.stop_all)

    @property
    def parts(self) -> dict[str, Process]:
        """Everything that can be killed, by name."""
        engines = {f"engine {number}": each for number, each in enumerate(self.engines, 1)}
        gateways = {f"gateway {number}": each for number, each in enumerate(self.gateways, 1)}
        return {**engines, **gateways, "Envoy": self.envoy}

    async def whole_again(self) -> None:
        """Wait until each gateway has all engines, and Envoy both gateways."""
        await in_thread(*(each.wait_ready for each in self.gateways))
        wanted = 2 * len(GATEWAYS) + len(ENGINES)
        while self.envoy.asked("/clusters").count("health_flags::healthy") < wanted:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)

    async def ask(self, body: Mapping[str, Any]) -> Reply:
        """One request through Envoy; status 0 where there was no answer."""
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(EDGE, self.envoy.ports["http"])
            writer.write(request_bytes(body, CHAT))
            try:
                return await read_reply(reader)
            finally:
                writer.close()
        return Reply()


@dataclass(slots=True)
class Seen:
    """What clients have seen in one phase.

    Attributes:
        whole: answers that were as they should be.
        failed: answers that were not, or did not come.
        last_failure_s: from the kill to the end of the last of these; 0 without any.
        longest_gap_s: longest silence within an answer that was whole.
    """

    whole: int = 0
    failed: int = 0
    last_failure_s: float = 0.0
    longest_gap_s: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict[int, int])


def body(number: int, tokens: int = 40) -> dict[str, Any]:
    """A stream of about so many tokens."""
    text = f"[[len:{tokens // 2}]] {number}"
    return {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": text}],
    }


async def clients(
    machines: Machines, count: int, seen: Seen, is_over: asyncio.Event, tokens: int = 40
) -> None:
    """So many clients, each with one request at a time, until it is over and all answers are there."""
    started = time.perf_counter()
    wanted = (await machines.ask(body(0, tokens))).texts

    async def one(number: int) -> None:
        while not is_over.is_set():
            reply = await machines.ask(body(number, tokens))
            if reply.is_whole and reply.texts == wanted:
                seen.whole += 1
                seen.longest_gap_s = max(seen.longest_gap_s, reply.longest_gap_s)
                continue
            seen.failed += 1
            seen.statuses[reply.status] = seen.statuses.get(reply.status, 0) + 1
            seen.last_failure_s = time.perf_counter() - started
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*map(one, range(count)))


async def phase(machines: Machines, name: str, count: int, seconds: float) -> Seen:
    """Put the load on, kill one part, wait, start it again, wait for the answers."""
    seen, is_over = Seen(), asyncio.Event()
    load = asyncio.create_task(clients(machines, count, seen, is_over))
    await asyncio.sleep(seconds / 2)
    part = machines.parts.get(name)
    before = time.perf_counter()
    if part is not None:
        await asyncio.to_thread(part.kill)
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(part.start)
    restarted_s = time.perf_counter() - before
    await asyncio.sleep(seconds / 2)
    is_over.set()
    await load
    await machines.whole_again()
    after_kill_s = max(0.0, seen.last_failure_s - seconds / 2)
    print(
        f"| {name} | {seen.whole + seen.failed} | {seen.failed} | {after_kill_s:.2f} s |"
        f" {seen.longest_gap_s * 1e3:.0f} ms | {restarted_s:.1f} s | {seen.statuses or ''} |",
        flush=True,
    )
    return seen


async def measure(count: int, seconds: float) -> None:
    """Print a line for each part."""
    async with Machines(ensure_tokenizer(BUILD / "tokenizer"), BUILD / "machines") as machines:
        print(
            "| killed | requests | failed | last failure after the kill | longest silence in a whole answer |"
            " back after | statuses of the failed |\n| --- | --- | --- | --- | --- | --- | --- |"
        )
        for name in ("nothing", *machines.parts):
            await phase(machines, name, count, seconds)


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy.machines", description=__doc__)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--phase-secs", type=float, default=4.0)
    asked = parser.parse_args()
    uvloop.run(measure(asked.clients, asked.phase_secs))


if __name__ == "__main__":
    main()
