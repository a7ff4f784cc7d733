"""<think>…</think> of Kimi-K2-Thinking and later, which begins its calls at times without closing its reasoning.

Source: chat template of Kimi-K2-Thinking; that the mark of calls ends the reasoning, as in vLLM's and SGLang's parsers.
"""

from __future__ import annotations

from smg.parsers.reasoning.think_tag import THINK_TAG

KIMI_K2 = THINK_TAG._replace(interrupts=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"))
