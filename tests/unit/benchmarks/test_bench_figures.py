"""figures and report: medians, ratios and verdicts come out as the gates define them."""

from __future__ import annotations

import pytest

from benchmarks.gateway.figures import judge, summarize
from benchmarks.gateway.load import Measurement
from benchmarks.gateway.machine import Cpu
from benchmarks.gateway.report import Setting, gate_table, render
from benchmarks.gateway.runner import Results
from benchmarks.gateway.scenarios import GATES, SCENARIOS, Gate
from benchmarks.gateway.systems import System

STREAM64 = SCENARIOS[0]
TOKENS = 1000


def measurement(gateway_us: float, engine_us: float = 10.0) -> Measurement:
    def cpu(us: float) -> Cpu:
        return Cpu(us * TOKENS / 1e6, 0.02, 0.01)

    return Measurement(
        requests=10,
        tokens=TOKENS,
        wall_s=1.0,
        cpu={"gateway": cpu(gateway_us), "engine": cpu(engine_us)},
        generator_cpu=cpu(1.0),
        first_text_ms=[float(i) for i in range(100)],
        content_events=TOKENS,
        prompt_tokens=5,
        answers=[],
    )


def results(original: list[float], ours: list[float]) -> Results:
    made = Results()
    made.measured["original", "stream64"] = [measurement(us, engine_us=60) for us in original]
    made.measured["ours", "stream64"] = [measurement(us, engine_us=10) for us in ours]
    return made


def gate_of(figure: str) -> Gate:
    return next(gate for gate in GATES if gate.figure == figure)


def test_the_median_repeat_counts_and_the_extremes_are_shown():
    row = summarize([measurement(30), measurement(90), measurement(31)], STREAM64)
    assert (row.gateway_us, row.lowest_us, row.highest_us) == pytest.approx((31, 30, 90))
    assert row.kernel_share == pytest.approx(1 / 3)
    assert (row.first_text_p50_ms, row.first_text_p99_ms, row.texts_per_token) == (50, 99, 1)


@pytest.mark.parametrize(
    ("ours", "passed", "met"), [(16.0, True, True), (20.0, True, False), (22.0, False, False)]
)
def test_a_gate_holds_ours_against_the_original(ours: float, passed: bool, met: bool):
    verdict = judge(gate_of("gateway_cpu"), results([30.0], [ours]))
    assert verdict.judged == pytest.approx(ours / 30)
    assert (verdict.has_passed, verdict.has_met_aim) == (passed, met)


def test_gateway_and_engine_count_together_where_the_gate_says_so():
    assert judge(gate_of("both_cpu"), results([30.0], [20.0])).judged == pytest.approx(30 / 90)


def test_without_the_original_nothing_is_judged():
    alone = results([], [20.0])
    verdict = judge(gate_of("gateway_cpu"), alone)
    assert (verdict.ours, verdict.original, verdict.has_passed) == (pytest.approx(20), None, None)


def test_an_absolute_gate_needs_no_original():
    resting = Results(idle_percent={"ours": 1.5})
    assert judge(gate_of("idle"), resting).has_passed is False


def test_a_missed_gate_stands_out_in_the_table():
    table = gate_table([judge(gate_of("gateway_cpu"), results([30.0], [29.0]))])
    assert "| 30.0 | 29.0 | 0.97 | ≤ 0.7 | **fail** |" in table


def test_every_gate_names_a_scenario_that_exists():
    keys = {scenario.key for scenario in SCENARIOS}
    assert {gate.scenario for gate in GATES if gate.scenario} <= keys


def test_a_report_shows_setting_figures_and_notes_and_leaves_out_what_did_not_run():
    setting = Setting(
        date="2026-01-02",
        cpu_model="Abacus",
        cores=2,
        commit="abc",
        versions={"python": "3"},
        original_version=None,
        command="python -m benchmarks.gateway",
        repeats=3,
    )
    ours = System("ours", "ours", "echo", ("smg",))
    text = render(setting, [ours], results([], [20.0]), ["it rained"])
    assert "Abacus, 2 cores" in text
    assert "| 64 streams of 200 tokens | ours | 20.0 µs/token |" in text
    assert "256 streams of 200" not in text
    assert "- it rained" in text
    assert "## Profile" not in text
