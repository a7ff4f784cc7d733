"""Compares what small requests cost in two checkouts: `python -m benchmarks.gateway.small --against DIRECTORY`.

Both gateways front one engine and get the same bodies in turn, many short rounds each; the lowest round counts, as
whatever else the machine does can only add. Good for differences of 2 to 3 %. Without --against: this checkout alone.
A checkout without generated code may be compared too: what it lacks is imported from this one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.gateway.children import Children, free_port
from benchmarks.gateway.load import Load, put_load
from benchmarks.gateway.prompts import PromptWriter
from benchmarks.gateway.runner import WARM_REQUESTS, scenario_bodies
from benchmarks.gateway.scenarios import SCENARIOS, STEP_S
from benchmarks.gateway.systems import (
    Rig,
    engine_command,
    gateway_command,
    known_systems,
    wait_until_ready,
)
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gateway.scenarios import Scenario

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_DIR = REPOSITORY / "build" / "bench"
SMALL = ("stream1", "unary")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkout and its running gateway."""

    name: str
    rig: Rig


def main() -> int:
    """Measure and print. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway.small", description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=320, help="requests of a round")
    keys = [scenario.key for scenario in SCENARIOS if scenario.pace == "stepped"]
    parser.add_argument("--scenarios", nargs="+", choices=keys, default=list(SMALL))
    asked = parser.parse_args()
    tokenizer = ensure_tokenizer(BUILD_DIR / "tokenizer")
    writer = PromptWriter(tokenizer)
    checkouts = {"this": REPOSITORY}
    if asked.against:
        checkouts["other"] = asked.against.resolve()
    with Children(REPOSITORY, BUILD_DIR) as engines, Children(REPOSITORY, BUILD_DIR) as this:
        with Children(checkouts.get("other", REPOSITORY), BUILD_DIR) as other:
            homes = {"this": this, "other": other}
            candidates = start(engines, {name: homes[name] for name in checkouts}, tokenizer)
            for scenario in SCENARIOS:
                if scenario.key in asked.scenarios:
                    compare(candidates, scenario, writer, asked.rounds, asked.requests)
    return 0


def start(engines: Children, homes: dict[str, Children], tokenizer: Path) -> list[Candidate]:
    """One engine, and a gateway of every checkout in front of it."""
    system = next(system for system in known_systems(None) if system.key == "ours")
    engine = engines.start("small-engine", engine_command(system.engine, tokenizer, STEP_S))
    url = engine.wait_for_line(r"ready (grpc://\S+)").group(1)
    candidates: list[Candidate] = []
    for name, children in homes.items():
        port = free_port()
        gateway = children.start(f"small-{name}", gateway_command(system, port, url, tokenizer))
        candidates.append(Candidate(name, Rig(system, gateway, engine, port)))
    for candidate in candidates:
        wait_until_ready(candidate.rig)
    return candidates


def compare(
    candidates: Sequence[Candidate], scenario: Scenario, writer: PromptWriter, rounds: int, requests: int
) -> None:
    """Run one load in turn and print the lowest and the median cost of a request or token."""
    costs: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for number in range(rounds):
        bodies = scenario_bodies(writer, scenario, requests, scenario.tokens, seed=f"{number}")
        warm = scenario_bodies(writer, scenario, WARM_REQUESTS, min(scenario.tokens, 8), seed=f"{number}/w")
        for candidate in candidates[:: 1 if number % 2 else -1]:
            load = Load(
                port=candidate.rig.port,
                is_stream=scenario.mode == "stream",
                concurrency=scenario.concurrency,
                tokens=scenario.tokens,
                bodies=bodies,
                warm_bodies=warm,
            )
            done = uvloop.run(put_load(load, candidate.rig.watched))
            units = done.tokens if scenario.per == "token" else done.requests
            costs[candidate.name].append(done.cpu["gateway"].total_s / units * 1e6)
    lowest = {name: min(of) for name, of in costs.items()}
    words = [f"{n} {lowest[n]:.1f} (median {statistics.median(of):.1f})" for n, of in costs.items()]
    ratio = f"; ratio {lowest['this'] / lowest['other']:.3f}" if "other" in costs else ""
    print(f"{scenario.title}, µs/{scenario.per}, lowest of {rounds}: {', '.join(words)}{ratio}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
