"""children: every process is ended by its pid, and one that fails says why."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.gateway.children import ChildFailed, Children

if TYPE_CHECKING:
    from pathlib import Path

WAITING = "import signal; print('ready grpc://127.0.0.1:7', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITING


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_waiting(children: Children, name: str) -> int:
    child = children.start(name, [sys.executable, "-c", WAITING])
    assert child.wait_for_line(r"ready (grpc://\S+)").group(1) == "grpc://127.0.0.1:7"
    return child.pid


def test_leaving_the_context_ends_all_processes(tmp_path: Path):
    with Children(tmp_path, tmp_path) as children:
        pids = [start_waiting(children, "one"), start_waiting(children, "two")]
        assert all(map(is_running, pids))
        assert children.cpu().total_s > 0
    assert not any(map(is_running, pids))


def test_an_error_in_the_context_ends_them_too(tmp_path: Path):
    pids: list[int] = []

    def fail() -> None:
        with Children(tmp_path, tmp_path) as children:
            pids.append(start_waiting(children, "one"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not is_running(pids[0])


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.gateway.children.STOP_GRACE_S", 0.05)
    with Children(tmp_path, tmp_path) as children:
        child = children.start("stubborn", [sys.executable, "-c", STUBBORN])
        child.wait_for_line("ready")
    assert not is_running(child.pid)


def test_a_process_that_ends_early_is_reported_with_its_log(tmp_path: Path):
    with Children(tmp_path, tmp_path) as children:
        child = children.start("broken", [sys.executable, "-c", "raise SystemExit('no such model')"])
        with pytest.raises(ChildFailed, match=r"broken ended with status 1(.|\n)*no such model"):
            child.wait_for_line("ready")


def test_settings_in_the_environment_do_not_reach_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMG_PORT", "1")
    with Children(tmp_path, tmp_path) as children:
        child = children.start(
            "env", [sys.executable, "-c", "import os; print('port', os.environ.get('SMG_PORT'))"]
        )
        assert child.wait_for_line(r"^port (.*)$").group(1) == "None"
