"""`smg worker`: becomes one engine with its servicer.

The router's code never imports an engine's; this command replaces its own process by `python -m servicers`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from smg.cli.extras import complain_about_missing_extra

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:  # noqa: RET503 -- execv does not return
    """Replace this process. Returns only when an extra is missing."""
    if engine_named(arguments) == "local" and complain_about_missing_extra("worker"):
        return 1
    os.execv(sys.executable, [sys.executable, "-m", "servicers", *arguments])  # noqa: S606 -- no shell is wanted


def engine_named(arguments: Sequence[str]) -> str:
    """Value of --engine; empty when it is not given."""
    for index, word in enumerate(arguments):
        if word.startswith("--engine="):
            return word.partition("=")[2]
        if word == "--engine" and index + 1 < len(arguments):
            return arguments[index + 1]
    return ""
