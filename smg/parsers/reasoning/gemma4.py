"""<|channel>thought, a line break, reasoning and <channel|>: Gemma 4 (its chat template).

The model has no other channel; with thinking off larger ones write an empty one.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

GEMMA4 = ReasoningFormat(opening="<|channel>thought\n", closing="<channel|>")
