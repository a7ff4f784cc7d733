"""Turns the measurements of a run into the figures of the tables and the verdict on each gate."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.gateway.machine import NO_CPU
from benchmarks.gateway.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gateway.load import Measurement
    from benchmarks.gateway.runner import Results
    from benchmarks.gateway.scenarios import Gate, Scenario
    from benchmarks.gateway.systems import SystemKey

SCENARIO_BY_KEY = {scenario.key: scenario for scenario in SCENARIOS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario on one system: medians of the repeats, with the extremes of what is judged."""

    gateway_us: float  # CPU of the gateway per token or per request
    lowest_us: float
    highest_us: float
    kernel_share: float | None
    engine_us: float
    generator_us: float
    first_text_p50_ms: float
    first_text_p99_ms: float
    wall_s: float
    texts_per_token: float  # SSE events with text per output token; below 1 where tokens were sent together


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate, judged. None where a system did not run."""

    gate: Gate
    original: float | None
    ours: float | None
    ours_sglang: float | None

    @property
    def judged(self) -> float | None:
        """What is held against the bound: the ratio, or our own figure."""
        if not self.gate.is_ratio:
            return self.ours
        return ratio(self.ours, self.original)

    @property
    def has_passed(self) -> bool | None:
        """Whether the bound holds; None when it cannot be judged."""
        return None if self.judged is None else self.judged <= self.gate.bound

    @property
    def has_met_aim(self) -> bool | None:
        """Whether the aim is reached; None without an aim or a figure."""
        return None if self.judged is None or self.gate.aim is None else self.judged <= self.gate.aim


def ratio(ours: float | None, original: float | None) -> float | None:
    """Ours by the original's."""
    return ours / original if ours is not None and original else None


def units(measurement: Measurement, scenario: Scenario) -> int:
    """What the cost is divided by: tokens or requests."""
    return measurement.tokens if scenario.per == "token" else measurement.requests


def cost_us(measurement: Measurement, scenario: Scenario, *names: str) -> float:
    """CPU microseconds of the named processes together, per token or per request."""
    total = sum((measurement.cpu[name] for name in names), NO_CPU).total_s
    return total / units(measurement, scenario) * 1e6


def summarize(measurements: Sequence[Measurement], scenario: Scenario) -> Row:
    """Medians over the repeats of one scenario on one system; at least one."""
    median = statistics.median
    costs = [cost_us(m, scenario, "gateway") for m in measurements]
    return Row(
        gateway_us=median(costs),
        lowest_us=min(costs),
        highest_us=max(costs),
        kernel_share=sum((m.cpu["gateway"] for m in measurements), NO_CPU).kernel_share,
        engine_us=median(cost_us(m, scenario, "engine") for m in measurements),
        generator_us=median(m.generator_cpu.total_s / units(m, scenario) * 1e6 for m in measurements),
        first_text_p50_ms=median(m.first_text_quantile(0.5) for m in measurements),
        first_text_p99_ms=median(m.first_text_quantile(0.99) for m in measurements),
        wall_s=median(m.wall_s for m in measurements),
        texts_per_token=median(m.content_events / m.tokens for m in measurements),
    )


def judge(gate: Gate, results: Results) -> Verdict:
    """Hold a run against one gate."""
    return Verdict(
        gate,
        original=_figure(gate, results, "original"),
        ours=_figure(gate, results, "ours"),
        ours_sglang=_figure(gate, results, "ours_sglang"),
    )


def _figure(gate: Gate, results: Results, system: SystemKey) -> float | None:
    if gate.figure == "idle":
        return results.idle_percent.get(system)
    if gate.figure == "memory":
        memory = results.memory_mb.get(system)
        return memory[0] if memory else None
    scenario = SCENARIO_BY_KEY[gate.scenario or ""]
    measurements = results.of(system, scenario.key)
    if not measurements:
        return None
    row = summarize(measurements, scenario)
    if gate.figure == "first_text_p99":
        return row.first_text_p99_ms
    if gate.figure == "gateway_cpu":
        return row.gateway_us
    return statistics.median(cost_us(m, scenario, "gateway", "engine") for m in measurements)
