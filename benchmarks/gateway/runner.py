"""Runs every scenario on every system, interleaved, and collects the measurements.

Within a repeat each scenario runs on all systems in turn with the same prompts, the order turning with the
repeat: whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvloop

from benchmarks.gateway.answers import WrongAnswer
from benchmarks.gateway.children import Children
from benchmarks.gateway.load import Load, put_load
from benchmarks.gateway.machine import machine_busy_s, memory_mb, process_cpu, tree_cpu
from benchmarks.gateway.perf import PerfFailed, library_shares
from benchmarks.gateway.profiling import ProfilerMissing, profile_gateway
from benchmarks.gateway.scenarios import SCENARIOS, STEP_S
from benchmarks.gateway.systems import start_rigs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.gateway.load import Measurement
    from benchmarks.gateway.perf import Shares
    from benchmarks.gateway.profiling import Profile
    from benchmarks.gateway.prompts import PromptWriter
    from benchmarks.gateway.scenarios import Pace, Scenario
    from benchmarks.gateway.systems import Rig, System, SystemKey

IDLE_WINDOW_S = 5.0
IDLE_SETTLE_S = 1.0
WARM_REQUESTS = 8
PROFILED = "stream64"
PROMPT_TOLERANCE = 0.01  # prompts may differ by template details, not in length


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run where."""

    repository: Path
    build_dir: Path
    tokenizer: Path
    systems: Sequence[System]
    repeats: int
    is_quick: bool
    with_profile: bool


@dataclass(slots=True)
class Results:
    """Everything that a run measured; lists have one entry a repeat."""

    measured: dict[tuple[SystemKey, str], list[Measurement]] = field(default_factory=dict)
    idle_percent: dict[SystemKey, float] = field(default_factory=dict)
    memory_mb: dict[SystemKey, tuple[float, float]] = field(default_factory=dict)  # resident now, peak
    libraries: dict[SystemKey, Shares] = field(default_factory=dict)  # parts of the CPU time under PROFILED
    profile: Profile | None = None
    notes: list[str] = field(default_factory=list)

    def of(self, system: SystemKey, scenario: str) -> list[Measurement]:
        """All repeats of a scenario on a system; empty when it did not run."""
        return self.measured.get((system, scenario), [])


class Runner:
    """One benchmark run."""

    def __init__(self, plan: Plan, writer: PromptWriter) -> None:
        self._plan = plan
        self._writer = writer
        self.results = Results()

    def run(self) -> Results:
        """Run everything. Raises WrongAnswer or ChildFailed; no process is left either way."""
        self._run_pace("stepped", STEP_S)
        self._run_pace("instant", 0.0)
        return self.results

    def _run_pace(self, pace: Pace, step_s: float) -> None:
        with Children(self._plan.repository, self._plan.build_dir) as children:
            start, busy_s, own = time.monotonic(), machine_busy_s(), process_cpu(os.getpid())
            rigs = start_rigs(children, self._plan.systems, self._plan.tokenizer, step_s)
            self._run_scenarios(rigs, pace)
            children.check_alive()
            if pace == "stepped":
                self._measure_rest(rigs)
            ours_s = (children.cpu() + process_cpu(os.getpid()) - own).total_s
            others_s = max(machine_busy_s() - busy_s - ours_s, 0.0)
            percent = others_s / (time.monotonic() - start) / (os.cpu_count() or 1) * 100
            self.results.notes.append(
                f"While the {pace} loads ran, other processes used {percent:.0f} % of the machine."
            )
            if pace == "stepped":
                self._profile(rigs)

    def _run_scenarios(self, rigs: Sequence[Rig], pace: Pace) -> None:
        for repeat in range(self._plan.repeats):
            turn = repeat % len(rigs)
            for scenario in SCENARIOS:
                if scenario.pace == pace:
                    self._run_on_all([*rigs[turn:], *rigs[:turn]], scenario, repeat)

    def _run_on_all(self, rigs: Sequence[Rig], scenario: Scenario, repeat: int) -> None:
        requests, tokens = scenario.size(is_quick=self._plan.is_quick)
        bodies = scenario_bodies(self._writer, scenario, requests, tokens, seed=f"{repeat}")
        warm_bodies = scenario_bodies(
            self._writer, scenario, WARM_REQUESTS, min(tokens, 8), seed=f"{repeat}/warm"
        )
        prompt_tokens: dict[str, int] = {}
        for rig in rigs:
            is_mock = rig.system.engine == "sglang_mock"
            load = Load(
                port=rig.port,
                is_stream=scenario.mode == "stream",
                concurrency=scenario.concurrency,
                tokens=tokens,
                bodies=bodies,
                warm_bodies=warm_bodies,
                rate=scenario.rate,
                expected_text=self._writer.passage(tokens)[1] if is_mock else None,
            )
            measurement = self._measure(rig, scenario, load)
            prompt_tokens[rig.system.title] = measurement.prompt_tokens
        note = compare_prompts(scenario, prompt_tokens)
        if note:
            self.results.notes.append(note)

    def _measure(self, rig: Rig, scenario: Scenario, load: Load) -> Measurement:
        try:
            measurement = uvloop.run(put_load(load, rig.watched))
        except (WrongAnswer, TimeoutError) as error:
            raise WrongAnswer(
                f"{rig.system.title}, {scenario.key}: {error or 'time limit'}; {rig.gateway.log} ends:\n"
                f"{rig.gateway.log_tail()}"
            ) from error
        self.results.measured.setdefault((rig.system.key, scenario.key), []).append(measurement)
        units = measurement.tokens if scenario.per == "token" else measurement.requests
        cost_us = measurement.cpu["gateway"].total_s / units * 1e6
        print(f"  {scenario.key:<14}{rig.system.key:<13}{cost_us:9.1f} µs/{scenario.per}"
              f"  wall {measurement.wall_s:6.2f} s", flush=True)  # fmt: skip
        return measurement

    def _measure_rest(self, rigs: Sequence[Rig]) -> None:
        """Memory and idle CPU of the gateways, after the load and with all connections closed."""
        time.sleep(IDLE_SETTLE_S)
        before = {rig.system.key: tree_cpu(rig.gateway.pid).total_s for rig in rigs}
        start = time.monotonic()
        time.sleep(IDLE_WINDOW_S)
        window_s = time.monotonic() - start
        for rig in rigs:
            key, pid = rig.system.key, rig.gateway.pid
            self.results.idle_percent[key] = (tree_cpu(pid).total_s - before[key]) / window_s * 100
            self.results.memory_mb[key] = (memory_mb(pid), memory_mb(pid, "VmHWM"))

    def _profile(self, rigs: Sequence[Rig]) -> None:
        if not self._plan.with_profile:
            return
        for rig in rigs:
            try:
                output = self._plan.build_dir / f"perf-{rig.system.key}.data"
                self.results.libraries[rig.system.key] = library_shares(rig, self._profile_load(rig), output)
            except PerfFailed as error:
                self.results.notes.append(f"No shares by library for {rig.system.title}: {error}.")
        for rig in (rig for rig in rigs if rig.system.key == "ours"):
            try:
                output = self._plan.build_dir / "profile.txt"
                self.results.profile = profile_gateway(rig, self._profile_load(rig), output)
            except ProfilerMissing as error:
                self.results.notes.append(f"No profile: {error}.")

    def _profile_load(self, rig: Rig) -> Load:
        scenario = next(scenario for scenario in SCENARIOS if scenario.key == PROFILED)
        requests, tokens = scenario.size(is_quick=self._plan.is_quick)
        return Load(
            port=rig.port,
            is_stream=scenario.mode == "stream",
            concurrency=scenario.concurrency,
            tokens=tokens,
            bodies=scenario_bodies(self._writer, scenario, requests, tokens, seed="profile"),
        )


def scenario_bodies(
    writer: PromptWriter, scenario: Scenario, count: int, tokens: int, seed: str
) -> list[bytes]:
    """Prompts that no other scenario or repeat has sent: "never seen" must be true."""
    return writer.bodies(
        scenario.prompt, mode=scenario.mode, tokens=tokens, count=count, seed=f"{scenario.key}/{seed}"
    )


def compare_prompts(scenario: Scenario, prompt_tokens: dict[str, int]) -> str | None:
    """Check that the systems counted the same prompts to the same lengths.

    Args:
        scenario: what ran.
        prompt_tokens: by system, the sum over all answers' usage.

    Returns: a note when they differ by little.

    Raises:
        WrongAnswer: they differ by more than PROMPT_TOLERANCE; the systems did unequal work.
    """
    low, high = min(prompt_tokens.values()), max(prompt_tokens.values())
    if high > low * (1 + PROMPT_TOLERANCE):
        raise WrongAnswer(f"{scenario.key}: prompt tokens by usage differ between systems: {prompt_tokens}")
    return f"{scenario.key}: prompt tokens by usage differ: {prompt_tokens}" if high != low else None
