"""[THINK]…[/THINK]: Magistral since 2507, Mistral Small 4 and Ministral 3 Reasoning (Mistral's tokenizers, v13).

Magistral 2506 wrote <think>…</think> as plain text: that is think_tag.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

MISTRAL = ReasoningFormat(opening="[THINK]", closing="[/THINK]")
