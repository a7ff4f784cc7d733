"""<|START_THINKING|>…<|END_THINKING|>: Command R7B, Command A Reasoning (their chat templates).

The answer stands between tags of its own, different ones in the two models.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

COHERE = ReasoningFormat(
    opening="<|START_THINKING|>",
    closing="<|END_THINKING|>",
    wrappers=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)
