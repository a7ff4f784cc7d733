"""Compares what requests cost in two checkouts: `python -m benchmarks.gateway.small --against DIRECTORY`.

Both gateways front one engine and get the same bodies in turn, many short rounds each; the median of the rounds'
ratios is printed. One run proves little: on a shared machine the ratio of the same two checkouts came out between
0.83 and 1.08 from run to run, as each start of a process may be luckier than the next. Repeat it, and keep all runs.

With --instructions each gateway runs under valgrind's callgrind instead and its instructions in user space are
counted. That hardly depends on what else runs (two runs differed by 0.5 %), but is blind to caches and to the kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.gateway import systems
from benchmarks.gateway.children import ChildFailed, Children, free_port
from benchmarks.gateway.load import Load, put_load
from benchmarks.gateway.prompts import PromptWriter
from benchmarks.gateway.runner import WARM_REQUESTS, scenario_bodies
from benchmarks.gateway.scenarios import SCENARIOS, STEP_S
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.gateway.load import Measurement
    from benchmarks.gateway.scenarios import Scenario

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_DIR = REPOSITORY / "build" / "bench"
THIS, OTHER = "this", "other"
COUNTED_REQUESTS = 160
COUNTING_WARM_REQUESTS = 64
COUNTING_START_S = 300.0
VALGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Setup:
    """What all checkouts share."""

    tokenizer: Path
    writer: PromptWriter
    engine_url: str
    scenarios: Sequence[Scenario]


def main() -> int:
    """Measure and print. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway.small", description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--requests", type=int, default=160, help="requests of a round")
    parser.add_argument("--instructions", action="store_true", help="count instructions (valgrind)")
    keys = [scenario.key for scenario in SCENARIOS if scenario.pace == "stepped"]
    parser.add_argument("--scenarios", nargs="+", choices=keys, default=["stream1", "unary"])
    asked = parser.parse_args()
    checkouts = {THIS: REPOSITORY}
    if asked.against:
        checkouts[OTHER] = asked.against.resolve()
    tokenizer = ensure_tokenizer(BUILD_DIR / "tokenizer")
    with Children(REPOSITORY, BUILD_DIR) as children:
        engine = children.start("small-engine", systems.engine_command("echo", tokenizer, STEP_S))
        url = engine.wait_for_line(r"ready (grpc://\S+)").group(1)
        scenarios = [scenario for scenario in SCENARIOS if scenario.key in asked.scenarios]
        setup = Setup(tokenizer, PromptWriter(tokenizer), url, scenarios)
        if asked.instructions:
            count(setup, checkouts)
        else:
            compare(setup, checkouts, asked.rounds, asked.requests)
    return 0


@contextlib.contextmanager
def running(
    setup: Setup, name: str, checkout: Path, launcher: Sequence[str] = ()
) -> Iterator[tuple[int, int]]:
    """A gateway of a checkout: its port and its process id."""
    system = next(system for system in systems.known_systems(None) if system.key == "ours")
    with Children(checkout, BUILD_DIR) as children:
        port = free_port()
        command = systems.gateway_command(system, port, setup.engine_url, setup.tokenizer)
        gateway = children.start(f"small-{name}", [*launcher, *command])
        systems.wait_until_ready(systems.Rig(system, gateway, gateway, port))
        yield port, gateway.pid


def put(setup: Setup, scenario: Scenario, port: int, pid: int, requests: int, seed: str) -> Measurement:
    """One round on one gateway."""
    load = Load(
        port=port,
        is_stream=scenario.mode == "stream",
        concurrency=scenario.concurrency,
        tokens=scenario.tokens,
        bodies=scenario_bodies(setup.writer, scenario, requests, scenario.tokens, seed=seed),
        warm_bodies=scenario_bodies(
            setup.writer, scenario, WARM_REQUESTS, min(scenario.tokens, 8), seed=f"{seed}/warm"
        ),
    )
    return uvloop.run(put_load(load, {"gateway": pid}))


def compare(setup: Setup, checkouts: Mapping[str, Path], rounds: int, requests: int) -> None:
    """CPU time of the gateways, round by round in turn."""
    with contextlib.ExitStack() as stack:
        rigs = {name: stack.enter_context(running(setup, name, at)) for name, at in checkouts.items()}
        for scenario in setup.scenarios:
            costs: dict[str, list[float]] = {name: [] for name in rigs}
            for number in range(rounds):
                for name in list(rigs)[:: 1 if number % 2 else -1]:
                    done = put(setup, scenario, *rigs[name], requests, f"{number}")
                    units = done.tokens if scenario.per == "token" else done.requests
                    costs[name].append(done.cpu["gateway"].total_s / units * 1e6)
            words = [
                f"{name} {statistics.median(of):.1f} (lowest {min(of):.1f})" for name, of in costs.items()
            ]
            print(f"{scenario.title}, µs/{scenario.per}: {', '.join(words)}{ratio(costs)}", flush=True)


def ratio(costs: Mapping[str, Sequence[float]]) -> str:
    """The median of the rounds' ratios, in words; nothing where there is one checkout."""
    if OTHER not in costs:
        return ""
    pairs = zip(costs[THIS], costs[OTHER], strict=True)
    return f"; ratio {statistics.median(this / other for this, other in pairs):.3f}"


def count(setup: Setup, checkouts: Mapping[str, Path]) -> None:
    """Instructions in user space, one gateway after the other."""
    systems.READY_LIMIT_S = COUNTING_START_S
    for name, checkout in checkouts.items():
        output = BUILD_DIR / f"callgrind-{name}.out"
        launcher = [*VALGRIND, f"--callgrind-out-file={output}"]
        with running(setup, name, checkout, launcher) as (port, pid):
            for number, scenario in enumerate(setup.scenarios, 1):
                put(setup, scenario, port, pid, COUNTING_WARM_REQUESTS, "warm")
                control(pid, "--instr=on")
                control(pid, "--zero")
                done = put(setup, scenario, port, pid, COUNTED_REQUESTS, "counted")
                control(pid, f"--dump={scenario.key}")
                control(pid, "--instr=off")
                dump = output.with_name(f"{output.name}.{number}")
                total = TOTAL.search(dump.read_text())
                if total is None:
                    raise ChildFailed(f"callgrind wrote no total to {dump}")
                each = int(total[1]) / (done.requests + WARM_REQUESTS) / 1e3
                print(f"{scenario.title}, {name}: {each:.0f} thousand instructions a request", flush=True)


def control(pid: int, order: str) -> None:
    """Tell a running callgrind what to do."""
    subprocess.run(["callgrind_control", order, str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
