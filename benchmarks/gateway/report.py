"""Writes a run as Markdown: where and how it was measured, the gates, every figure, the profile, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.gateway.figures import judge, ratio, summarize
from benchmarks.gateway.scenarios import GATES, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.gateway.figures import Verdict
    from benchmarks.gateway.profiling import Profile
    from benchmarks.gateway.runner import Results
    from benchmarks.gateway.systems import System

READING = """\
Costs are CPU time of the process itself (all threads; user and kernel). A busy machine makes them larger, for both
gateways, and less even (shared caches and cores); wall times and times to first text it makes worthless. Every answer was checked: complete, ended as asked, output tokens by usage, and on the
mock engine the very text. "Engine" is the servicer's process: a Python mock of SGLang's servicer (one message per
token) or our echo engine (one message per step). User and kernel time are counted by the kernel in ticks: about right
only. Texts per token: SSE events with text by output tokens; below 1 where a gateway sent several tokens at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a run was made."""

    date: str
    cpu_model: str
    cores: int
    commit: str
    versions: dict[str, str]
    original_version: str | None
    command: str
    repeats: int


def render(setting: Setting, systems: Sequence[System], results: Results, notes: Iterable[str]) -> str:
    """The whole document."""
    parts = [
        f"# Gateway benchmark, {setting.date}",
        _setting(setting),
        "## Gates",
        gate_table([judge(gate, results) for gate in GATES]),
        "## Figures",
        READING,
        figure_table(systems, results),
        "## At rest, after the runs",
        rest_table(systems, results),
    ]
    if results.libraries:
        parts += ["## Where the time goes under 64 streams: kernel and libraries (perf)"]
        parts += [library_table(systems, results)]
    if results.profile is not None:
        parts += ["## Profile of our gateway, 64 streams", profile_text(results.profile)]
    lines = [*notes, *results.notes]
    if lines:
        parts += ["## Notes", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def gate_table(verdicts: Iterable[Verdict]) -> str:
    """One line a gate."""
    rows = [
        [
            f"{v.gate.title} ({v.gate.unit})",
            _number(v.original),
            _number(v.ours),
            _number(ratio(v.ours, v.original), 2),
            f"≤ {v.gate.bound:g}" + ("" if v.gate.is_ratio else f" {v.gate.unit}"),
            {True: "pass", False: "**fail**", None: "-"}[v.has_passed],
            "-" if v.gate.aim is None else f"{v.gate.aim:g}",
            {True: "met", False: "not yet", None: "-"}[v.has_met_aim],
            _number(v.ours_sglang),
            _number(ratio(v.ours_sglang, v.original), 2),
        ]
        for v in verdicts
    ]
    head = ["what", "original", "ours", "ratio", "gate", "", "aim", "", "ours on SGLang's protocol", "ratio"]
    return _table(head, rows)


def figure_table(systems: Sequence[System], results: Results) -> str:
    """One line for each scenario and system."""
    rows: list[list[str]] = []
    for scenario in SCENARIOS:
        for system in systems:
            measurements = results.of(system.key, scenario.key)
            if not measurements:
                continue
            row = summarize(measurements, scenario)
            kernel = "-" if row.kernel_share is None else f"{row.kernel_share:.0%}"
            rows.append(
                [
                    scenario.title,
                    system.title,
                    f"{_number(row.gateway_us)} µs/{scenario.per}",
                    f"{_number(row.lowest_us)} to {_number(row.highest_us)}",
                    kernel,
                    _number(row.engine_us),
                    f"{_number(row.first_text_p50_ms)} / {_number(row.first_text_p99_ms)}",
                    f"{row.wall_s:.2f}",
                    "-" if scenario.mode == "unary" else f"{row.texts_per_token:.2f}",
                    _number(row.generator_us),
                ]
            )
    head = ["load", "gateway", "its CPU", "lowest to highest", "kernel part", "engine's CPU, µs", "first text p50 / p99, ms",
            "wall, s", "texts per token", "generator's CPU, µs"]  # fmt: skip
    return _table(head, rows)


def rest_table(systems: Sequence[System], results: Results) -> str:
    """Memory and idle CPU of each gateway."""
    rows = [
        [
            system.title,
            _number(results.idle_percent.get(system.key), 2),
            _number(results.memory_mb.get(system.key, (None, None))[0]),
            _number(results.memory_mb.get(system.key, (None, None))[1]),
        ]
        for system in systems
    ]
    return _table(["gateway", "idle, % of a core", "resident, MB", "peak, MB"], rows)


def library_table(systems: Sequence[System], results: Results) -> str:
    """Part of each gateway's CPU time by library; the kernel, whose larger part is the socket write, first."""
    shares = {system.title: dict(results.libraries.get(system.key, [])) for system in systems}
    names = sorted(
        {name for by_name in shares.values() for name in by_name}, key=lambda name: name != "kernel"
    )
    rows = [[name, *(f"{by[name]:.1%}" if name in by else "-" for by in shares.values())] for name in names]
    return _table(["in", *shares], rows)


def profile_text(profile: Profile) -> str:
    """Top functions, user and kernel time apart."""
    cpu = profile.cpu
    parts = [
        f"{profile.samples} samples (py-spy) in which a thread ran or waited for a core: on a busy machine that makes "
        "calls that wake others, as a socket write does, look larger than they are. The sampler stops the gateway each time, which costs kernel "
        f"time: CPU while sampled {cpu.total_s:.2f} s, of it user {cpu.user_s:.2f} s and kernel {cpu.kernel_s:.2f} s; "
        "undisturbed figures are above.",
    ]
    for title, counts in (
        ("Python function with the native code it called", profile.own),
        ("Python function with all it called", profile.whole),
        ("innermost frame (native code, system calls)", profile.leaves),
    ):
        parts.append(_table([title, "share"], [[f"`{name}`", f"{share:.1%}"] for name, share in counts]))
    return "\n\n".join(parts)


def _setting(setting: Setting) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in setting.versions.items())
    original = setting.original_version or "not run"
    return "\n".join(
        [
            f"- Machine: {setting.cpu_model}, {setting.cores} cores",
            f"- Commit: {setting.commit}",
            f"- Versions: {versions}; original gateway: {original}",
            f"- Command: `{setting.command}`; medians of {setting.repeats}, systems interleaved",
        ]
    )


def _number(value: float | None, digits: int | None = None) -> str:
    """Three significant places unless told otherwise; a dash for nothing."""
    if value is None:
        return "-"
    if digits is None:
        digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
