"""Samples the gateway's frames under load (py-spy) and counts which Python functions the time is spent in.

py-spy reads the process from outside and stops it for each sample, so shares tell where to look, not what it costs.
`pip install py-spy` once. How much of the time is the kernel's: perf.py.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.gateway.load import put_load

if TYPE_CHECKING:
    from benchmarks.gateway.load import Load
    from benchmarks.gateway.machine import Cpu
    from benchmarks.gateway.systems import Rig

SAMPLES_PER_S = 233  # each stops the process for a moment; a prime, so as not to be in step with the engine
ATTACH_S = 1.0
LONGEST_S = 60
TOP = 20
# A thread whose innermost Python function, or frame, is one of these waits: the sampler takes it for running.
WAITS = ("Condition.wait (threading.py)", "_worker (concurrent/futures/thread.py)")
SYSTEM_WAITS = (
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "clock_nanosleep",
)


class ProfilerMissing(Exception):
    """py-spy is not installed or may not read the process."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the gateway's time went. Shares are of the samples in which it ran, 0 to 1."""

    samples: int
    leaves: list[tuple[str, float]]  # the innermost frame, native code and system calls included
    own: list[tuple[str, float]]  # Python function with the native code that it called
    whole: list[tuple[str, float]]  # Python function with all that it called
    cpu: Cpu


def find_profiler() -> str:
    """Path of py-spy. Raises ProfilerMissing."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ProfilerMissing("--profile needs py-spy: pip install py-spy")
    return found


def profile_gateway(rig: Rig, load: Load, output: Path) -> Profile:
    """Put the load on the gateway while py-spy samples it."""
    command = [find_profiler(), "record", "--pid", str(rig.gateway.pid), "--rate", str(SAMPLES_PER_S), "--native",
               "--format", "raw", "--duration", str(LONGEST_S), "--output", str(output)]  # fmt: skip
    log = output.with_suffix(".log")
    output.unlink(missing_ok=True)
    with log.open("wb") as sink:
        profiler = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        time.sleep(ATTACH_S)
        measurement = uvloop.run(put_load(load, rig.watched))
    finally:
        profiler.send_signal(signal.SIGINT)  # py-spy's way to end early and still write
        try:
            profiler.wait(20)
        except subprocess.TimeoutExpired:
            profiler.kill()
            profiler.wait()
    if not output.exists():
        raise ProfilerMissing(f"py-spy wrote nothing: {log.read_text(errors='replace')[-400:]}")
    return summarize(output.read_text(errors="replace"), measurement.cpu["gateway"])


def summarize(stacks: str, cpu: Cpu) -> Profile:
    """Count collapsed stacks: one line a stack, frames from the outermost, `;` between, the count last."""
    leaves: Counter[str] = Counter()
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdigit():
            continue
        frames = [short_frame(frame) for frame in stack.split(";")]
        in_python = [frame for frame in frames if frame.endswith(".py)")]
        innermost = in_python[-1] if in_python else "threads without Python"
        if innermost in WAITS or frames[-1].startswith(SYSTEM_WAITS):
            continue
        leaves[frames[-1]] += int(count)
        own[innermost] += int(count)
        for frame in set(in_python):
            whole[frame] += int(count)
    samples = leaves.total()
    return Profile(samples, _top(leaves, samples), _top(own, samples), _top(whole, samples), cpu)


def short_frame(frame: str) -> str:
    """Frame name with the path cut to its last three parts and the line number dropped."""
    name, bracket, place = frame.partition(" (")
    if not bracket:
        return name
    path = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    return f"{name} ({'/'.join(path.split('/')[-3:])})"


def _top(counts: Counter[str], samples: int) -> list[tuple[str, float]]:
    return [(name, count / samples) for name, count in counts.most_common(TOP)]
