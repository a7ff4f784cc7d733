"""A deterministic engine without weights: the product's test double and benchmark engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions


def create_engine(options: EngineOptions) -> Engine:
    """Make the engine; its models are loaded by Engine.start."""
    from servicers.echo.engine import EchoEngine

    return EchoEngine(options)
