"""Estimates the prompt tokens that wait on an engine to be computed: what it told last, and what was sent to it since.

What is sent counts less the share of prompts that the engine has found in its cache of late.
"""

from __future__ import annotations

# Weight of the newest prompt in the share that caches cover.
_NEWEST = 0.1


class Backlog:
    """The backlog of one engine that tells its load with its steps.

    Attributes:
        tokens: the estimate.
    """

    __slots__ = ("tokens", "_uncached_share")

    def __init__(self) -> None:
        self.tokens = 0.0
        self._uncached_share = 1.0

    def sent(self, tokens: int) -> None:
        """A prompt of so many tokens is on its way."""
        self.tokens += tokens * self._uncached_share

    def told(self, waiting_uncached_tokens: int) -> None:
        """The engine has told what waits; what it has not seen yet is so little that it is let go."""
        self.tokens = waiting_uncached_tokens

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A prompt is computed, of which the cache covered some."""
        if prompt_tokens:
            newest = 1 - cached_tokens / prompt_tokens
            self._uncached_share += _NEWEST * (newest - self._uncached_share)
