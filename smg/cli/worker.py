"""`smg worker`: becomes one engine with its servicer.

The router's code never imports an engine's; this command replaces its own process by `python -m servicers`, which
knows its own flags and says what is not installed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> NoReturn:
    """Replace this process."""
    os.execv(sys.executable, [sys.executable, "-m", "servicers", *arguments])  # noqa: S606 -- no shell is wanted
