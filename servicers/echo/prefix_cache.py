"""Simulates an engine's prefix cache: which leading blocks of a prompt have been seen, of the latest seen ones.

A block is known by a hash over it and all before it. A prompt's last token is never cached: an engine computes it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from servicers.token_bytes import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCK_TOKENS = 16
_BLOCK_BYTES = BLOCK_TOKENS * ID_BYTES


class PrefixCache:
    """A bounded, least-recently-used set of blocks."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    @property
    def used_tokens(self) -> int:
        """Tokens held."""
        return len(self._blocks) * BLOCK_TOKENS

    @property
    def capacity_tokens(self) -> int:
        """Most tokens held."""
        return self._capacity * BLOCK_TOKENS

    def cached_tokens(self, blocks: Sequence[int]) -> int:
        """Leading tokens of a prompt that are held. Leaves everything as it is."""
        held = self._blocks
        count = 0
        for block in blocks:
            if block not in held:
                break
            count += 1
        return count * BLOCK_TOKENS

    def add(self, blocks: Sequence[int]) -> None:
        """Hold the blocks of a prompt; drop the longest unused where there is no room."""
        held = self._blocks
        # Backwards: without its first blocks a prefix is worth nothing, so they are dropped last.
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._capacity:
            held.popitem(last=False)

    def flush(self, used: Iterable[Sequence[int]]) -> int:
        """Drop all blocks but those of the prompts in use. Returns the number of tokens dropped."""
        kept = {block for blocks in used for block in blocks}
        before = len(self._blocks)
        self._blocks = OrderedDict.fromkeys(block for block in self._blocks if block in kept)
        return (before - len(self._blocks)) * BLOCK_TOKENS


def prompt_blocks(prompt_ids: bytes, model: str) -> list[int]:
    """The blocks of a prompt for one model, first to last. The last token is in none."""
    blocks: list[int] = []
    chain = hash(model)
    for start in range(0, len(prompt_ids) - _BLOCK_BYTES, _BLOCK_BYTES):
        chain = hash((chain, prompt_ids[start : start + _BLOCK_BYTES]))
        blocks.append(chain)
    return blocks
