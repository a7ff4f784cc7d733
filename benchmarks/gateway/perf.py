"""Splits a gateway's CPU time into the kernel's and each library's, with Linux's `perf` where it is installed.

perf samples by the CPU clock, so only what runs is counted and the process is not stopped: these shares can be
trusted where the tick-based split of /proc is coarse and py-spy's stops get in the way.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import uvloop

from benchmarks.gateway.load import put_load

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.gateway.load import Load
    from benchmarks.gateway.systems import Rig

Shares = list[tuple[str, float]]  # library and its part of the CPU time, 0 to 1

SAMPLES_PER_S = 997  # a prime: never in step with the engine
ATTACH_S = 0.5
STOP_LIMIT_S = 20.0
KERNEL = "[kernel.kallsyms]"
LEAST_SHARE = 0.005
REPORT_LINE = re.compile(r"^\s*([\d.]+)%\s+(\S+)\s*$")


class PerfFailed(Exception):
    """perf is not there or may not look at the process."""


def library_shares(rig: Rig, load: Load, output: Path) -> Shares:
    """Put the load on the gateway while perf samples it. Raises PerfFailed."""
    perf = shutil.which("perf")
    if perf is None:
        raise PerfFailed("perf is not installed")
    output.unlink(missing_ok=True)
    command = [perf, "record", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_S), "--pid", str(rig.gateway.pid),
               "--output", str(output)]  # fmt: skip
    recorder = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(ATTACH_S)
        uvloop.run(put_load(load, rig.watched))
    finally:
        recorder.send_signal(signal.SIGINT)
        try:
            recorder.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            recorder.kill()
            recorder.wait()
    report = [perf, "report", "--input", str(output), "--no-children", "--sort", "dso", "--stdio"]
    shares = parse_report(subprocess.run(report, capture_output=True, text=True, check=False).stdout)
    if not shares:
        raise PerfFailed("perf took no samples")
    return shares


def parse_report(text: str) -> Shares:
    """Read `perf report --sort dso --stdio`; the kernel's own line is named so."""
    found = (REPORT_LINE.match(line) for line in text.splitlines())
    shares = [(match[2].replace(KERNEL, "kernel"), float(match[1]) / 100) for match in found if match]
    return [(name, share) for name, share in shares if share >= LEAST_SHARE]
