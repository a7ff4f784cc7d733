"""Tells a model's reasoning from its answer. THE table of formats: one file and one line each; names share formats."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.parsers.reasoning.base import ReasoningFormat, ReasoningParser
from smg.parsers.reasoning.cohere import COHERE
from smg.parsers.reasoning.gemma4 import GEMMA4
from smg.parsers.reasoning.kimi_k2 import KIMI_K2
from smg.parsers.reasoning.kimi_k3 import KIMI_K3
from smg.parsers.reasoning.kimi_vl import KIMI_VL
from smg.parsers.reasoning.minimax_m3 import MINIMAX_M3
from smg.parsers.reasoning.mistral import MISTRAL
from smg.parsers.reasoning.seed_oss import SEED_OSS
from smg.parsers.reasoning.think_tag import THINK_FIRST, THINK_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REASONING_PARSERS", "ReasoningFormat", "ReasoningParser", "reasoning_parser"]

REASONING_PARSERS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        "cohere": COHERE,
        "deepseek_r1": THINK_FIRST,
        "deepseek_v3": THINK_TAG,
        "gemma4": GEMMA4,
        "glm45": THINK_TAG,
        "kimi_k2": KIMI_K2,
        "kimi_k3": KIMI_K3,
        "kimi_vl": KIMI_VL,
        "minimax_m2": THINK_FIRST,
        "minimax_m3": MINIMAX_M3,
        "mistral": MISTRAL,
        "nemotron": THINK_TAG,
        "olmo3": THINK_FIRST,
        "qwen3": THINK_TAG,
        "qwen3_thinking": THINK_FIRST,
        "seed_oss": SEED_OSS,
        "step3": THINK_FIRST,
        "think_tag": THINK_TAG,
    }
)


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
