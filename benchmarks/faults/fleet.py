"""Engines as processes that can be killed, frozen and started again on the same port; and the gateway before them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from benchmarks.gateway.children import POLL_S, ChildFailed, Children
from benchmarks.gateway.load import HOST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.gateway.children import Child


class EngineProcess:
    """One engine: `smg worker` on a port that stays the same over its lives."""

    def __init__(self, children: Children, name: str, flags: Sequence[str]) -> None:
        self._children = children
        self._name = name
        self._flags = list(flags)
        self._port = 0
        self._lives = 0
        self._child: Child
        self.start()

    @property
    def url(self) -> str:
        """Its address, as soon as it is ready."""
        return f"grpc://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Of its present life."""
        return self._child.pid

    def start(self) -> None:
        """Begin a life. It is not ready yet."""
        self._lives += 1
        command = [sys.executable, "-m", "servicers", "--host", HOST, "--port", str(self._port), *self._flags]
        self._child = self._children.start(f"{self._name}-{self._lives}", command)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it serves. Raises ChildFailed. Blocks."""
        found = self._child.wait_for_line(r"ready grpc://\S+:(\d+)", timeout_s)
        self._port = int(found.group(1))

    def kill(self) -> None:
        """SIGKILL: the kernel closes its sockets, nobody says goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self._child.reap()

    def freeze(self) -> None:
        """SIGSTOP: its sockets stay open and take bytes, and nothing ever answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)


def echo_flags(tokenizer: Path, step_s: float, *more: str) -> list[str]:
    """Flags of an echo engine."""
    return ["--engine", "echo", "--model-path", str(tokenizer), "--model-id", "m", "--step-seconds", str(step_s),
            "--log-level", "warning", *more]  # fmt: skip


def start_gateway(
    children: Children, urls: Sequence[str], *flags: str, log_level: str = "warn"
) -> tuple[Child, int]:
    """Start `smg launch`. Returns it and its HTTP port; ready when it says so. Raises ChildFailed. Blocks."""
    command = [sys.executable, "-m", "smg", "launch", "--host", HOST, "--port", "0", "--grpc-port", "0",
               "--log-level", log_level, "--worker-urls", *urls, *flags]  # fmt: skip
    child = children.start("gateway", command)
    port = int(child.wait_for_line(r"^ready http://\S+:(\d+)", 60.0).group(1))
    deadline = time.monotonic() + 60.0
    while metric(port, "smg_worker_ready") < len(urls):
        if time.monotonic() > deadline:
            raise ChildFailed(f"not all of {', '.join(urls)} got ready in time:\n{child.log_tail()}")
        time.sleep(POLL_S)
    return child, port


def metric(port: int, name: str) -> float:
    """The sum of a metric of the gateway over its labels. Blocks."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def commit(root: Path) -> str:
    """Short name of the commit that is measured."""
    asked = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() or "unknown"
