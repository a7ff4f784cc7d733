"""Simulates every policy over three workloads: one table, and whether the gates hold.

usage: python -m benchmarks.routing [--workers 8] [--requests 4000] [--seeds 2] [--cache-tokens 98304]
                                    [--policy NAME ...] [--workload NAME ...]
Figures are means over the seeds; a gate holds only if it holds for every seed.
"""

from __future__ import annotations

import argparse
import random
import statistics

from benchmarks.routing.engine import EngineFigures
from benchmarks.routing.gates import verdicts
from benchmarks.routing.simulation import Figures, Simulation
from benchmarks.routing.workloads import WORKLOADS
from smg.policies import POLICIES

# The first worker gets everything: in a simulation of many its queue grows without end, and says nothing.
POINTLESS = frozenset(("passthrough",))


def simulate(
    workload: str, policies: list[str], *, workers: int, requests: int, seed: int, engine: EngineFigures
) -> dict[str, Figures]:
    """Every policy on the same requests."""
    sessions = WORKLOADS[workload](random.Random(seed), requests)
    return {name: Simulation(name, workers, engine, seed).run(sessions) for name in policies}


def row(workload: str, policy: str, runs: list[Figures]) -> str:
    """A line of the table."""
    return (
        f"| {workload} | {policy} | {statistics.fmean(run.hit_rate for run in runs):.1%}"
        f" | {statistics.fmean(run.imbalance for run in runs):.2f}"
        f" | {statistics.fmean(run.percentile_ms(50) for run in runs):.0f}"
        f" | {statistics.fmean(run.percentile_ms(99) for run in runs):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate policies over a fleet.")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=4000, help="requests of each workload")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each policy on each workload")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--cache-tokens", type=int, default=EngineFigures().cache_tokens)
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES))
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    arguments = parser.parse_args()
    policies = arguments.policy or sorted(set(POLICIES) - POINTLESS)
    engine = EngineFigures(cache_tokens=arguments.cache_tokens)
    print("| workload | policy | hit rate | max/mean load | TTFT p50, ms | TTFT p99, ms |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    told: list[str] = []
    for workload in arguments.workload or WORKLOADS:
        runs = [
            simulate(
                workload,
                policies,
                workers=arguments.workers,
                requests=arguments.requests,
                seed=seed,
                engine=engine,
            )
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        ]
        for name in policies:
            print(row(workload, name, [run[name] for run in runs]), flush=True)
        told += verdicts(workload, runs)
    print("\n" + "\n".join(told))


if __name__ == "__main__":
    main()
