"""The embedded engine. `create_engine` is what servicers/factory.py calls; importing this needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions


def create_engine(options: EngineOptions) -> Engine:
    """Make the engine that the command line asks for; it is not started yet.

    Raises:
        ModuleNotFoundError: torch or llguidance is not installed.
        CannotStart: the options ask for what this engine does not do.
    """
    import importlib.util

    from servicers.base import CannotStart
    from servicers.local.engine import LocalEngine
    from servicers.local.settings import settings_from_options

    for name in ("torch", "numpy", "llguidance", "safetensors"):
        # Found, not imported: that takes a second, and must wait for the environment that torch reads.
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    try:
        return LocalEngine(settings_from_options(options))
    except ValueError as error:
        raise CannotStart(str(error)) from error
