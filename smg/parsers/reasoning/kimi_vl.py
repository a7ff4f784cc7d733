"""◁think▷…◁/think▷: Kimi-VL-Thinking (its chat template)."""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

KIMI_VL = ReasoningFormat(opening="◁think▷", closing="◁/think▷")
