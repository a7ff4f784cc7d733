"""Measures what Envoy in front of a gateway costs: CPU time per event of a stream, and per small request.

    python -m benchmarks.envoy.cost [--repeats 3]

Three ways, in turn, before the same gateway and engine: straight to its HTTP port; through an Envoy that passes HTTP on;
through deploy/envoy/edge.yaml, which speaks gRPC to it. Prints the table of docs/envoy.md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from typing import TYPE_CHECKING

import uvloop

from benchmarks.envoy.rig import BUILD, DROPPED_VARIABLES, ROOT, Engine, Envoy, Gateway, ours, plain_proxy
from benchmarks.gateway.children import Children, free_port
from benchmarks.gateway.load import HOST, Load, put_load
from benchmarks.gateway.prompts import PromptWriter
from benchmarks.gateway.scenarios import STEP_S
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAMS, TOKENS, REQUESTS = 64, 200, 1000


def _load(writer: PromptWriter, port: int, *, is_stream: bool, seed: str) -> Load:
    mode = "stream" if is_stream else "unary"
    tokens, count = (TOKENS, 2 * STREAMS) if is_stream else (1, REQUESTS)

    def bodies(number: int, what: str) -> Sequence[bytes]:
        return writer.bodies("small", mode=mode, tokens=tokens, count=number, seed=f"{seed}{what}")

    return Load(
        port=port,
        is_stream=is_stream,
        concurrency=STREAMS if is_stream else 20,
        tokens=tokens,
        bodies=bodies(count, "measured"),
        warm_bodies=bodies(STREAMS, "warm"),
    )


async def measure(repeats: int) -> None:
    """Print the table."""
    tokenizer = ensure_tokenizer(BUILD / "tokenizer")
    writer = PromptWriter(tokenizer)
    with Children(ROOT, BUILD / "envoy", DROPPED_VARIABLES) as children:
        found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
        for is_stream, step_s in ((True, STEP_S), (False, 0.0)):
            engine = Engine(children, f"engine-{step_s}", HOST, tokenizer, step_s)
            engine.start()
            gateway = Gateway(children, f"gateway-{step_s}", HOST, [engine.target], free_port(), free_port())
            gateway.start()
            proxy = Envoy(children, "proxy", plain_proxy(HOST, gateway.port), HOST)
            edge = Envoy(children, "edge", ours("edge.yaml", {"gateway": [(HOST, gateway.grpc_port)]}), HOST)
            for envoy in (proxy, edge):
                envoy.start()
            ways = {
                "the gateway's own port": (gateway.port, None),
                "Envoy, HTTP to that port": (proxy.ports["http"], proxy),
                "Envoy, gRPC (edge.yaml)": (edge.ports["http"], edge),
            }
            for repeat in range(repeats):
                for name, (port, envoy) in ways.items():
                    watched = {"gateway": gateway.pid, **({"envoy": envoy.pid} if envoy else {})}
                    load = _load(writer, port, is_stream=is_stream, seed=f"{name}{repeat}")
                    done = await put_load(load, watched)
                    count = done.tokens if is_stream else done.requests
                    pair = tuple(
                        done.cpu[each].total_s / count * 1e6 if each in done.cpu else 0.0
                        for each in ("envoy", "gateway")
                    )
                    found.setdefault((name, is_stream), []).append((pair[0], pair[1]))
            for process in (proxy, edge, gateway, engine):
                await asyncio.to_thread(process.kill)
    print(
        "| way | per event: Envoy + gateway = both | per request: Envoy + gateway = both |\n| --- | --- | --- |"
    )
    for name in dict.fromkeys(name for name, _ in found):
        print(f"| {name} | {_told(found[name, True])} | {_told(found[name, False])} |")


def _told(pairs: Sequence[tuple[float, float]]) -> str:
    """Medians of the sums, with the repeat that has it, and the range."""
    sums = sorted(pairs, key=sum)
    envoy, gateway = sums[len(sums) // 2]
    low, high = sum(sums[0]), sum(sums[-1])
    middle = statistics.median(map(sum, sums))
    return f"{envoy:.0f} + {gateway:.0f} = **{middle:.0f} µs** [{low:.0f} to {high:.0f}]"


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy.cost", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    uvloop.run(measure(parser.parse_args().repeats))


if __name__ == "__main__":
    main()
