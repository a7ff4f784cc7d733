"""Tells a model's calls of functions from its answer. THE table of formats: one file and one line each.

forced.py has the two that a request asks for, not a model.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.parsers.tools.hermes import HermesCalls
from smg.parsers.tools.json_calls import JsonCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smg.parsers.tools.base import ToolParser

__all__ = ["TOOL_PARSERS", "tool_parser"]

TOOL_PARSERS: Mapping[str, Callable[[], ToolParser]] = MappingProxyType(
    {
        "hermes": HermesCalls,
        "json": JsonCalls,
    }
)


def tool_parser(name: str) -> ToolParser:
    """A fresh parser, for one choice.

    Args:
        name: a key of TOOL_PARSERS.

    Raises:
        ValueError: no such format.
    """
    make = TOOL_PARSERS.get(name)
    if make is None:
        msg = f"unknown tool call parser {name!r}; known: {', '.join(sorted(TOOL_PARSERS))}"
        raise ValueError(msg)
    return make()
