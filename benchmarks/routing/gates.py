"""What cache_aware has to show, workload by workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.routing.simulation import Figures

    Runs = Mapping[str, Figures]

OURS = "cache_aware"


def hit_rate_to_best(run: Runs) -> float:
    """Hit rate over that of the best policy; at least 0.98 is wanted."""
    return run[OURS].hit_rate / max(figures.hit_rate for figures in run.values())


def p99_to_best_other(run: Runs) -> float:
    """p99 of the time to first token over that of the best other policy; at most 1 is wanted."""
    others = [figures for name, figures in run.items() if name != OURS]
    return run[OURS].percentile_ms(99) / min(figures.percentile_ms(99) for figures in others)


def worst_to_least_load(run: Runs) -> float:
    """The largest of mean, p50 and p99 of the time to first token over least_load's; at most 1.05 is wanted."""
    ours, theirs = run[OURS], run["least_load"]
    return max(
        ours.mean_ms / theirs.mean_ms,
        ours.percentile_ms(50) / theirs.percentile_ms(50),
        ours.percentile_ms(99) / theirs.percentile_ms(99),
    )


def at_least(bound: float) -> Callable[[float], bool]:
    """Passes values from a bound on."""
    return lambda value: value >= bound


def at_most(bound: float) -> Callable[[float], bool]:
    """Passes values up to a bound."""
    return lambda value: value <= bound


class Gate(NamedTuple):
    """Attributes: name: what is compared. figure: the comparison of one run. passes: whether its value is good."""

    name: str
    figure: Callable[[Runs], float]
    passes: Callable[[float], bool]


_CACHED = (
    Gate("hit rate over the best", hit_rate_to_best, at_least(0.98)),
    Gate("p99 TTFT over the best other", p99_to_best_other, at_most(1)),
)
GATES = {
    "shared system prompts": _CACHED,
    "multi-turn sessions": _CACHED,
    "uniform": (Gate("TTFT over least_load", worst_to_least_load, at_most(1.05)),),
}


def verdicts(workload: str, runs: Sequence[Runs]) -> list[str]:
    """A line per gate: its value for every seed, and whether all of them pass."""
    lines: list[str] = []
    for name, figure, passes in GATES[workload]:
        if OURS not in runs[0] or len(runs[0]) < 2 or "least_load" not in runs[0]:
            continue
        values = [figure(run) for run in runs]
        verdict = "holds" if all(map(passes, values)) else "FAILS"
        lines.append(f"{workload}: {name}: {', '.join(f'{value:.3f}' for value in values)}: {verdict}")
    return lines
