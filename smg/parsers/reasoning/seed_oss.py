"""<seed:think>…</seed:think>: Seed-OSS (its chat template).

What it says of its budget inside, between <seed:cot_budget_reflect> tags, is part of the reasoning.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

SEED_OSS = ReasoningFormat(opening="<seed:think>", closing="</seed:think>")
