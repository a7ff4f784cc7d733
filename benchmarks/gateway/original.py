"""Finds the original gateway's executable, or installs it from PyPI into a virtual environment of its own.

Its package has our package's name, so the two can never share an environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.13.0"
VARIABLE = "SMG_BENCH_ORIGINAL"
INSTALL_LIMIT_S = 300


class OriginalMissing(Exception):
    """The original gateway cannot be had here; the message says why."""


def find_original(given: Path | None, build_dir: Path) -> Path:
    """The executable: the one given, the one named in the environment, or ours in the build directory.

    Raises:
        OriginalMissing: the named file does not exist, or it could not be installed.
    """
    named = given or _from_environment(build_dir)
    if named is not None:
        if not os.access(named, os.X_OK):
            raise OriginalMissing(f"{named} is not an executable file")
        return named.absolute()
    venv = build_dir / "original-venv"
    executable = venv / "bin" / "smg"
    if not executable.exists():
        _install(venv, build_dir / "original-install.log")
    return executable.absolute()


def installed_version(executable: Path) -> str:
    """Version of the package beside the executable; "unknown" when its interpreter cannot tell."""
    question = "import importlib.metadata as m; print(m.version('smg'))"
    command = [str(executable.parent / "python"), "-c", question]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _from_environment(build_dir: Path) -> Path | None:
    value = os.environ.get(VARIABLE, "")
    return type(build_dir)(value) if value else None


def _install(venv: Path, log: Path) -> None:
    print(f"installing smg=={VERSION} into {venv} (log: {log})", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as sink:
            for command in (
                [sys.executable, "-m", "venv", str(venv)],
                [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", f"smg=={VERSION}"],
            ):
                subprocess.run(command, stdout=sink, stderr=sink, check=True, timeout=INSTALL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise OriginalMissing(f"smg=={VERSION} could not be installed: {error}; see {log}") from error
