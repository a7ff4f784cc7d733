"""<mm:think>…</mm:think>: MiniMax-M3 (its model card)."""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

MINIMAX_M3 = ReasoningFormat(opening="<mm:think>", closing="</mm:think>")
