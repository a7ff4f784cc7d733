"""Runs the gateway benchmark: `python -m benchmarks.gateway [--quick] [--profile]`."""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Never

from benchmarks.gateway.answers import WrongAnswer
from benchmarks.gateway.children import ChildFailed
from benchmarks.gateway.figures import judge
from benchmarks.gateway.machine import commit, cpu_model, package_versions
from benchmarks.gateway.original import OriginalMissing, find_original, installed_version
from benchmarks.gateway.profiling import ProfilerMissing, find_profiler
from benchmarks.gateway.prompts import PromptWriter
from benchmarks.gateway.report import Setting, render
from benchmarks.gateway.runner import Plan, Runner
from benchmarks.gateway.scenarios import GATES
from benchmarks.gateway.systems import known_systems
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence


REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_DIR = REPOSITORY / "build" / "bench"
RESULTS_DIR = REPOSITORY / "benchmarks" / "results"
REPEATS = 3
BUSY_LOAD = 0.25  # load average by core above which others are at work
SYSTEM_KEYS = ("original", "ours", "ours_sglang")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one repeat with fewer requests; not kept as a result"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also sample the gateways under 64 streams (py-spy; perf if there)",
    )
    parser.add_argument(
        "--original", type=Path, help="executable of the original gateway; else it is installed"
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEM_KEYS, default=list(SYSTEM_KEYS), metavar="NAME",
                        help=f"which to run, of: {', '.join(SYSTEM_KEYS)}")  # fmt: skip
    parser.add_argument("--output", type=Path, help="where to write the result")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a gate is missed")
    return parser.parse_args(arguments)


def main() -> int:
    """Run, print and write. Returns the exit status."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, _exit_on_signal)
    notes: list[str] = []
    try:
        document, has_passed = _run(arguments, notes)
    except (WrongAnswer, ChildFailed, ProfilerMissing) as error:
        print(f"benchmark failed: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; all processes were ended", file=sys.stderr)
        return 130
    print(document)
    output = arguments.output or _default_output(is_quick=arguments.quick)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(document)
    print(f"written to {output}")
    return 1 if arguments.check and not has_passed else 0


def _run(arguments: argparse.Namespace, notes: list[str]) -> tuple[str, bool]:
    if arguments.profile:
        find_profiler()
    tokenizer = ensure_tokenizer(BUILD_DIR / "tokenizer")
    original = _find_original(arguments, notes)
    systems = [system for system in known_systems(original) if system.key in arguments.systems]
    if not systems:
        raise ChildFailed("nothing to run: " + "; ".join(notes))
    repeats = 1 if arguments.quick else REPEATS
    plan = Plan(
        repository=REPOSITORY,
        build_dir=BUILD_DIR,
        tokenizer=tokenizer,
        systems=systems,
        repeats=repeats,
        is_quick=arguments.quick,
        with_profile=arguments.profile,
    )
    note_load(notes, os.getloadavg()[0], os.cpu_count() or 1)
    results = Runner(plan, PromptWriter(tokenizer)).run()
    setting = Setting(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cpu_model=cpu_model(),
        cores=os.cpu_count() or 1,
        commit=commit(REPOSITORY),
        versions=package_versions(),
        original_version=installed_version(original) if original else None,
        command=command_text(arguments),
        repeats=repeats,
    )
    has_passed = all(judge(gate, results).has_passed is not False for gate in GATES)
    return render(setting, systems, results, notes), has_passed


def command_text(arguments: argparse.Namespace) -> str:
    """The command as another machine would run it: without paths."""
    words = ["python -m benchmarks.gateway"]
    words += [f"--{name}" for name in ("quick", "profile") if getattr(arguments, name)]
    if set(arguments.systems) != set(SYSTEM_KEYS):
        words += ["--systems", *arguments.systems]
    return " ".join(words)


def note_load(notes: list[str], load: float, cores: int) -> None:
    """Say so when the machine was at work before the run began."""
    if load > BUSY_LOAD * cores:
        notes.append(
            f"The machine was busy before the start: load average {load:.2f} on {cores} cores. "
            "CPU times are then larger and ratios of one repeat swing; wall times and times to first text mean little."
        )


def _find_original(arguments: argparse.Namespace, notes: list[str]) -> Path | None:
    if "original" not in arguments.systems:
        return None
    try:
        return find_original(arguments.original, BUILD_DIR)
    except OriginalMissing as error:
        notes.append(f"The original did not run, so no gate could be judged: {error}")
        print(notes[-1], file=sys.stderr)
        return None


def _default_output(*, is_quick: bool) -> Path:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return BUILD_DIR / f"{date}-quick.md" if is_quick else RESULTS_DIR / f"{date}.md"


def _exit_on_signal(number: int, _frame: object) -> Never:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
