"""Starts the processes of a benchmark and ends each of them by its pid, whatever happens.

Every child has its own session, so that Ctrl-C reaches the runner alone, which then ends them in order.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

from benchmarks.gateway.machine import NO_CPU, tree_cpu

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from benchmarks.gateway.machine import Cpu

POLL_S = 0.05
STOP_GRACE_S = 8.0
# Our import path must not leak into the original's interpreter, nor anybody's settings into a gateway.
DROPPED_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SMG_")


class ChildFailed(Exception):
    """A process ended or did not get ready; the message holds the end of its log."""


class Child:
    """One running process with its log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def check_alive(self) -> None:
        """Raise ChildFailed if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ChildFailed(f"{self.name} ended with status {code}; {self.log} ends:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def wait_for_line(self, pattern: str, timeout_s: float = 30.0) -> re.Match[str]:
        """Wait until a line of the log matches. Raises ChildFailed when it ends first or the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            match = re.search(pattern, self._written_lines(), re.MULTILINE)
            if match:
                return match
            self.check_alive()
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{self.name}: no line {pattern!r} in {timeout_s:g} s; log:\n{self.log_tail()}"
                )
            time.sleep(POLL_S)

    def _written_lines(self) -> str:
        """What it wrote so far in whole lines, without the command in front."""
        _, _, written = self.log.read_text(errors="replace").partition("\n")
        return written[: written.rfind("\n") + 1]

    def signal_stop(self) -> None:
        """Ask it to end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def reap(self) -> None:
        """Wait for its end, by force if it takes too long."""
        try:
            self._process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Children:
    """The processes of one run; leaving the context ends them all, the last started first."""

    def __init__(
        self, cwd: Path, log_dir: Path, dropped_variables: tuple[str, ...] = DROPPED_VARIABLES
    ) -> None:
        """Args: dropped_variables: beginnings of names that are not handed on."""
        self._cwd = cwd
        self._log_dir = log_dir
        self._dropped_variables = dropped_variables
        self._running: list[Child] = []

    def __enter__(self) -> Self:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start(self, name: str, command: Sequence[str]) -> Child:
        """Start a process; its output goes to NAME.log, the command itself in the first line."""
        log = self._log_dir / f"{name}.log"
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(self._dropped_variables)
        }
        with log.open("wb") as sink:
            sink.write(f"$ {' '.join(command)}\n".encode())
            sink.flush()
            process = subprocess.Popen(
                list(command),
                cwd=self._cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._running.append(child)
        return child

    def check_alive(self) -> None:
        """Raise ChildFailed if any has ended."""
        for child in self._running:
            child.check_alive()

    def cpu(self) -> Cpu:
        """CPU time of all of them since they were started."""
        return sum((tree_cpu(child.pid) for child in self._running), NO_CPU)

    def stop_all(self) -> None:
        """End them all: the last started (gateways) before what they talk to (engines)."""
        while self._running:
            child = self._running[-1]
            child.signal_stop()
            child.reap()
            self._running.pop()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
