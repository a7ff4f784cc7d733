"""SGLang as an engine behind the session contract. `create_engine` is what servicers/factory.py calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions


def create_engine(options: EngineOptions) -> Engine:
    """Make the engine that the command line asks for; it is not started yet.

    Raises:
        CannotStart: SGLang is not installed, or the options ask for what it does not do.
    """
    from servicers.sglang.engine import find_package
    from servicers.sglang.servicer import SglangEngine
    from servicers.sglang.settings import settings_from_options

    settings = settings_from_options(options)
    return SglangEngine(settings, find_package())
