"""Measures what each policy takes to pick a worker: microseconds per pick by the size of the fleet.

usage: python -m benchmarks.policies [--tokens 4096] [--picks 400] [--policy NAME ...] [--memory]
CPU time of this process: the median pick, and in brackets the fastest tenth and the slowest hundredth, which tell what
else the machine did. Every pick sees new pictures of the workers, and a prompt of which a part was seen before: a system
prompt that all share, and every second time the history of one of 500 sessions. With --memory: what the index of
cache_aware takes after a million distinct prompts.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from pathlib import Path

from smg.policies import POLICIES, make_policy
from smg.policies.base import RouteRequest
from smg.policies.blocks import Blocks
from smg.policies.prefix_index import Holder, PrefixIndex
from smg.settings import RoutingSettings
from smg.types.worker import WorkerSnapshot
from smg.wiring import YOUNG_OBJECTS

FLEETS = (10, 100, 1000)
SESSIONS = 500
SHARED = 0.25  # of a prompt is the system prompt
SLOTS = 64


class Fleet:
    """Workers with loads that change from pick to pick, as engines report them."""

    def __init__(self, size: int, rng: random.Random) -> None:
        self._rng = rng
        self._pictures = [self._picture(index) for index in range(size)]

    def pictures(self) -> tuple[WorkerSnapshot, ...]:
        """New pictures of a tenth of the workers, as a registry makes them."""
        for index in self._rng.sample(range(len(self._pictures)), len(self._pictures) // 10):
            self._pictures[index] = self._picture(index)
        return tuple(self._pictures)

    def _picture(self, index: int) -> WorkerSnapshot:
        busy = self._rng.randrange(SLOTS)
        return WorkerSnapshot(
            f"worker-{index}",
            f"grpc://host-{index}:50051",
            busy,
            busy,
            0,
            busy / SLOTS,
            instance_id="1",
            slots=SLOTS,
        )


def requests(tokens: int, count: int, rng: random.Random) -> list[RouteRequest]:
    """Prompts of which every second goes on from one seen before."""
    shared = rng.randbytes(4 * int(tokens * SHARED))
    rest = 4 * tokens - len(shared)
    sessions = [rng.randbytes(rest) for _ in range(SESSIONS)]
    made: list[RouteRequest] = []
    for number in range(count):
        session = rng.randrange(SESSIONS)
        tail = sessions[session][: rest // 2] + rng.randbytes(rest - rest // 2)
        ids = shared + (tail if number % 2 else rng.randbytes(rest))
        made.append(RouteRequest("model", ids, routing_key=f"session-{session}" if number % 2 else ""))
    return made


def pick_us(name: str, size: int, tokens: int, picks: int) -> str:
    """Median, 10th and 99th percentile of one pick."""
    rng = random.Random(1)
    fleet, policy = Fleet(size, rng), make_policy(name, random.Random(2))
    prompts = requests(tokens, picks + picks // 2, rng)
    times: list[float] = []
    gc.collect()
    gc.freeze()
    for number, request in enumerate(prompts):
        pictures = fleet.pictures()
        start = time.process_time_ns()
        policy.pick(pictures, request)
        if number >= picks // 2:
            times.append((time.process_time_ns() - start) / 1000)
    times.sort()
    return (
        f"{statistics.median(times):.0f} ({times[len(times) // 10]:.0f}-{times[len(times) * 99 // 100]:.0f})"
    )


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def memory(prompts: int, tokens: int) -> None:
    """Print the size of the index under many distinct prompts, none of which comes again."""
    settings = RoutingSettings()
    blocks = Blocks(settings.block_size)
    index = PrefixIndex(settings.max_tree_size // settings.block_size)
    holders = [Holder(f"worker-{number}", "1") for number in range(100)]
    rng = random.Random(1)
    gc.collect()
    before = resident_mib()
    print(
        "| distinct prompts | entries | memory, MiB | slowest addition, ms |\n| ---: | ---: | ---: | ---: |"
    )
    slowest = 0.0
    for number in range(1, prompts + 1):
        keys = blocks.keys("model", rng.randbytes(4 * tokens))
        start = time.process_time()
        index.add(keys, rng.choice(holders))
        slowest = max(slowest, time.process_time() - start)
        if number in {prompts // 100, prompts // 10, prompts // 2, prompts}:
            print(f"| {number:,} | {len(index):,} | {resident_mib() - before:.0f} | {slowest * 1000:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what policies cost.")
    parser.add_argument("--tokens", type=int, default=4096, help="length of the prompts")
    parser.add_argument("--picks", type=int, default=400, help="picks per figure")
    parser.add_argument(
        "--policy", action="append", choices=sorted(POLICIES), help="only this one; may be repeated"
    )
    parser.add_argument("--memory", action="store_true", help="measure the index of cache_aware instead")
    parser.add_argument("--prompts", type=int, default=1_000_000, help="with --memory: distinct prompts")
    arguments = parser.parse_args()
    # As the router sets it for itself.
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    if arguments.memory:
        memory(arguments.prompts, 512)
        return
    print(f"µs per pick, median (10th to 99th percentile), prompts of {arguments.tokens} tokens\n")
    print("| policy | " + " | ".join(f"{size} workers" for size in FLEETS) + " |")
    print("| --- |" + " ---: |" * len(FLEETS))
    for name in arguments.policy or sorted(POLICIES):
        figures = [pick_us(name, size, arguments.tokens, arguments.picks) for size in FLEETS]
        print(f"| {name} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
