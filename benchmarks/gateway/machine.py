"""Reads from /proc what processes and the machine have spent, and what the machine is.

CPU time of another process is read from its POSIX CPU clock: nanoseconds, every thread, those that have ended
included. A busy machine disturbs it far less than wall times. The split into user and kernel time comes from
/proc/PID/stat, whose ticks are 10 ms: good for runs of half a second, a hint for shorter ones. Linux only.
Formats: man 5 proc, man 2 clock_getres.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PROC = Path("/proc")
REPORTED_PACKAGES = (
    "grpcio",
    "protobuf",
    "httptools",
    "uvloop",
    "pydantic",
    "tokenizers",
    "smg-grpc-proto",
)
CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h: the clock that counts what the scheduler gave


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of one or more processes. `total_s` is exact; the two others are in ticks of 10 ms."""

    total_s: float
    user_s: float
    kernel_s: float

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.total_s + other.total_s, self.user_s + other.user_s, self.kernel_s + other.kernel_s)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.total_s - other.total_s, self.user_s - other.user_s, self.kernel_s - other.kernel_s)

    @property
    def kernel_share(self) -> float | None:
        """Kernel part of the time, 0 to 1; None when the run was too short for a single tick."""
        ticked = self.user_s + self.kernel_s
        return self.kernel_s / ticked if ticked > 0 else None


NO_CPU = Cpu(0.0, 0.0, 0.0)


def parse_stat(text: str) -> tuple[int, int]:
    """User and kernel ticks of a /proc/PID/stat line; the process name in it may hold blanks and brackets."""
    fields = text.rsplit(")", 1)[1].split()
    return int(fields[11]), int(fields[12])


def parse_memory_kb(text: str, field: str) -> int:
    """One field of /proc/PID/status, such as VmRSS, in kB."""
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise ValueError(f"no field {field!r} in the status of the process")


def process_cpu(pid: int) -> Cpu:
    """CPU time of one process since it started. Raises OSError when it is gone."""
    user, kernel = parse_stat((PROC / str(pid) / "stat").read_text())
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return Cpu(time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED), user * tick_s, kernel * tick_s)


def process_tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        for children in (PROC / str(parent) / "task").glob("*/children"):
            found.extend(int(child) for child in children.read_text().split())
    return found


def tree_cpu(pid: int) -> Cpu:
    """CPU time of a process and its living descendants."""
    return sum((process_cpu(member) for member in process_tree(pid)), NO_CPU)


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of one process, in units of 1,000,000 bytes; "VmHWM" is its peak."""
    return parse_memory_kb((PROC / str(pid) / "status").read_text(), field) * 1024 / 1e6


def machine_busy_s() -> float:
    """CPU seconds that all processes on all cores have used since boot, stolen time left out."""
    ticks = [int(number) for number in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:8]]
    user, nice, system, _idle, _iowait, irq, softirq = ticks
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cpu_model() -> str:
    """The CPU's name as the kernel gives it."""
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit(repository: Path) -> str:
    """Short hash of the checked-out commit, with "+changes" when files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def package_versions(names: Iterable[str] = REPORTED_PACKAGES) -> dict[str, str]:
    """Installed versions of the packages that matter; those that are missing are left out."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
