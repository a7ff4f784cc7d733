"""Sums the token counts of a response's turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.responses.shapes import Json


@dataclass(slots=True)
class UsageSum:
    """Counts of all turns that have ended. None of them is counted until one has."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    is_known: bool = False

    def add(self, input_tokens: int, output_tokens: int, cached_tokens: int, reasoning_tokens: int) -> None:
        """One more turn."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cached_tokens += cached_tokens
        self.reasoning_tokens += reasoning_tokens
        self.is_known = True

    def shown(self) -> Json | None:
        """The usage object; None where no turn has told its counts."""
        if not self.is_known:
            return None
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }
