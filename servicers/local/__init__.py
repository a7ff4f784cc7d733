"""The embedded engine. `create_engine` is what servicers/factory.py calls; importing this needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions


def create_engine(options: EngineOptions) -> Engine:
    """Make the engine that the command line asks for; it is not started yet.

    Raises:
        ModuleNotFoundError: torch or llguidance is not installed.
        CannotStart: the options name a model that is not there.
    """
    import importlib.util

    from servicers.local.choose import engines_of

    for name in ("torch", "numpy", "llguidance", "safetensors"):
        # Found, not imported: that takes a second, and must wait for the environment that torch reads.
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    return engines_of(options)
