"""Simulates every policy over three workloads and prints one table.

usage: python -m benchmarks.routing [--workers 8] [--requests 6000] [--seeds 3] [--policy NAME ...] [--workload NAME ...]
"""

from __future__ import annotations

import argparse
import random
import time

from benchmarks.routing.engine import EngineFigures
from benchmarks.routing.simulation import Simulation
from benchmarks.routing.workloads import WORKLOADS
from smg.policies import POLICIES


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate policies over a fleet.")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES))
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    arguments = parser.parse_args()
    for workload in arguments.workload or WORKLOADS:
        sessions = WORKLOADS[workload](random.Random(arguments.seed), arguments.requests)
        for name in arguments.policy or sorted(POLICIES):
            t = time.process_time()
            figures = Simulation(name, arguments.workers, EngineFigures(), arguments.seed).run(sessions)
            print(
                f"{workload:22} {name:20} hit {figures.hit_rate:6.1%} imb {figures.imbalance:5.2f}"
                f" mean {figures.mean_ms:7.0f} p50 {figures.percentile_ms(50):7.0f}"
                f" p99 {figures.percentile_ms(99):7.0f}  ({time.process_time() - t:.1f}s)"
            )


if __name__ == "__main__":
    main()
