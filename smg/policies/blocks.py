"""Turns the token ids of a prompt into the keys of its prefixes, one key per block.

A key stands for everything from the prompt's start to the end of its block: it is the hash of the key before it and the
block's tokens. Keys are those of one process (Python's own keyed hash): no client can make two prompts collide.

Blocks grow with their distance from the start: 16 of the given size, then 8 of twice that size, 8 of four times, and so
on. A prefix is known to 1/8 of its length or better, and a long prompt costs little more than a short one.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice

TOKEN_BYTES = 4
# Prefixes longer than this do not tell more about where a prompt's cache is.
MAX_TOKENS = 65_536
_EQUAL_BLOCKS = 16
_BLOCKS_PER_OCTAVE = 8


class Blocks:
    """The cuts of prompts into blocks."""

    def __init__(self, block_tokens: int) -> None:
        """Args: block_tokens: length of the first blocks, at least 1."""
        ends: list[int] = []
        size, end = block_tokens, 0
        left = _EQUAL_BLOCKS
        while end + size <= max(MAX_TOKENS, block_tokens):
            end += size
            ends.append(end)
            left -= 1
            if not left:
                size, left = size * 2, _BLOCKS_PER_OCTAVE
        self._ends = ends
        starts = [0, *ends]
        self._slices = [
            slice(start * TOKEN_BYTES, end * TOKEN_BYTES) for start, end in zip(starts, ends, strict=False)
        ]

    def keys(self, model: str, ids: bytes) -> list[int]:
        """The keys of all whole blocks of a prompt, from its start.

        Args:
            model: prefixes of different models are different.
            ids: packed token ids.
        """
        count = bisect_right(self._ends, len(ids) // TOKEN_BYTES)
        key = hash(model)
        keys: list[int] = []
        for cut in islice(self._slices, count):
            key = hash((key, ids[cut]))
            keys.append(key)
        return keys

    def whole(self, tokens: int) -> int:
        """Whole blocks in so many tokens."""
        return bisect_right(self._ends, tokens)

    def tokens(self, count: int) -> int:
        """Tokens in the first so many blocks."""
        return self._ends[count - 1] if count else 0
