"""Tells a model's reasoning from its answer. THE table of formats: one file and one line each."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.parsers.reasoning.base import ReasoningFormat, ReasoningParser
from smg.parsers.reasoning.think_tag import THINK_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REASONING_PARSERS", "ReasoningFormat", "ReasoningParser", "reasoning_parser"]

REASONING_PARSERS: Mapping[str, ReasoningFormat] = MappingProxyType({"think_tag": THINK_TAG})


def reasoning_parser(name: str, *, starts_inside: bool) -> ReasoningParser:
    """A fresh parser, for one choice.

    Args:
        name: a key of REASONING_PARSERS.
        starts_inside: the answer's text is reasoning from its first character: the prompt opened it, or the model
            thinks before it answers. An opening tag that the model writes all the same is not shown.

    Raises:
        ValueError: no such format.
    """
    found = REASONING_PARSERS.get(name)
    if found is None:
        msg = f"unknown reasoning parser {name!r}; known: {', '.join(sorted(REASONING_PARSERS))}"
        raise ValueError(msg)
    return ReasoningParser(found, starts_inside=starts_inside)
