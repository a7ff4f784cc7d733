"""<think>…</think>: Qwen3, GLM, Nemotron, SmolLM3 and many others (their chat templates).

THINK_FIRST: the same tags of models whose prompt or training opens the reasoning, so that the answer mostly has the
closing tag alone: DeepSeek-R1, QwQ, Qwen3-Thinking, MiniMax-M2, Step3, OLMo 3 Think (model cards and chat templates).
MiniMax asks clients to send the reasoning back as part of the content; vLLM and SGLang have `append_think` for that,
which leaves it in the content with the tags. Here it is told apart like any other.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

THINK_TAG = ReasoningFormat(opening="<think>", closing="</think>")
THINK_FIRST = THINK_TAG._replace(reasons_first=True)
