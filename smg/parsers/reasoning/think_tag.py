"""<think>…</think>: Qwen3, DeepSeek-R1, GLM, MiniMax, SmolLM3 and many others (their chat templates)."""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

THINK_TAG = ReasoningFormat(opening="<think>", closing="</think>")
