"""The simulation of policies: the relations that it is there to show hold on a small run too, and runs repeat."""

import pytest

from benchmarks.routing.__main__ import simulate
from benchmarks.routing.engine import EngineFigures
from benchmarks.routing.gates import hit_rate_to_best, p99_to_best_other, verdicts, worst_to_least_load

POLICIES = ["cache_aware", "least_load", "prefix_hash", "round_robin"]


def run(workload, policies=POLICIES, requests=900):
    return simulate(
        workload, policies, workers=8, requests=requests, seed=7, engine=EngineFigures(cache_tokens=48 * 1024)
    )


@pytest.mark.parametrize("workload", ["shared system prompts", "multi-turn sessions"])
def test_cache_aware_finds_what_is_cached_and_keeps_the_first_token_fast(workload):
    figures = run(workload)
    assert hit_rate_to_best(figures) >= 0.98
    # A hundredth of so few requests is no measure to rank policies by: the whole run compares it with every policy.
    assert figures["cache_aware"].mean_ms <= 1.05 * min(each.mean_ms for each in figures.values())
    assert p99_to_best_other({name: figures[name] for name in ("cache_aware", "least_load")}) < 1
    assert figures["cache_aware"].hit_rate > 1.2 * figures["least_load"].hit_rate
    assert figures["cache_aware"].imbalance < figures["prefix_hash"].imbalance


def test_where_nothing_is_cached_cache_aware_is_as_good_as_least_load():
    assert worst_to_least_load(run("uniform", ["cache_aware", "least_load"])) <= 1.05


def test_a_run_gives_the_same_figures_again():
    one, other = (run("multi-turn sessions", ["cache_aware", "bucket"], 300) for _ in range(2))
    assert one == other
    assert one["bucket"] != one["cache_aware"]


def test_a_gate_that_fails_is_told():
    figures = run("shared system prompts", ["cache_aware", "least_load"], 300)
    swapped = {"cache_aware": figures["least_load"], "least_load": figures["cache_aware"]}
    assert all(line.endswith("holds") for line in verdicts("shared system prompts", [figures]))
    assert all(line.endswith("FAILS") for line in verdicts("shared system prompts", [figures, swapped]))
