"""Which formats a model writes, told from its chat template and its vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def tool_parser_name(template_text: str, spells: Callable[[str], bool]) -> str:
    """The key in TOOL_PARSERS.

    Args:
        template_text: source of the model's chat templates.
        spells: whether a text is a token of the model's vocabulary.
    """
    marker = "<tool_call>"
    return "hermes" if marker in template_text or spells(marker) else "json"


def reasoning_parser_name(template_text: str, has_token: Callable[[str], bool]) -> str | None:
    """The key in REASONING_PARSERS, or None for a model that does not reason.

    Args:
        template_text: source of the model's chat templates.
        has_token: whether a text is a token of the model's vocabulary.
    """
    tags = ("<think>", "</think>")
    return "think_tag" if any(tag in template_text or has_token(tag) for tag in tags) else None


# Families whose models open every answer with reasoning while they think, mostly without writing the tag that their
# prompt has already written. Beginnings of a segment of the model's name.
_REASONS_FIRST = ("qwen3", "qwq", "deepseek-r1", "deepseek-v4", "kimi-k3", "kimi_k3", "minimax-m", "glm-5.3")


def reasons_first(model_name: str) -> bool:
    """Whether an answer begins inside reasoning, tag or no tag, whenever the model thinks.

    Of other models that is known only by the tag, in the prompt or in the answer: one whose template merely allows
    thinking must not have its whole answer taken for reasoning.
    """
    return any(segment.startswith(_REASONS_FIRST) for segment in model_name.lower().split("/"))
