"""Makes the engine that --engine names. A new engine is its folder and one line here.

Engines are imported when they are asked for: the echo engine runs without torch.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from servicers.base import CannotStart

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions

# Module with `create_engine(options: EngineOptions) -> Engine`.
ENGINES = {
    "echo": "servicers.echo",
    "local": "servicers.local",
    "sglang": "servicers.sglang",
}
_LOCAL_NEEDS = ("torch", "safetensors", "numpy", "llguidance")


def create_engine(name: str, options: EngineOptions) -> Engine:
    """Make an engine; it is not started yet.

    Raises:
        CannotStart: it is not there, or something that it needs is not installed.
    """
    try:
        return importlib.import_module(ENGINES[name]).create_engine(options)
    except ModuleNotFoundError as error:
        if error.name in _LOCAL_NEEDS:
            raise CannotStart(_how_to_install(error.name)) from error
        raise


def _how_to_install(missing: str) -> str:
    pip = f"{sys.executable} -m pip install"
    return (
        f"engine local needs {missing}, which is not installed; install it with:\n"
        f"  {pip} torch==2.13.0        # a CPU build: see README.md for the index to take it from\n"
        f"  {pip} 'smg[local]'"
    )
