"""Simulates an engine's prefix cache: which leading blocks of a prompt have been seen, of the latest seen ones.

A block is known by a hash over it and all before it. A prompt's last token is never cached: an engine computes it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from servicers.token_bytes import ID_BYTES
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCK_TOKENS = 16
_BLOCK_BYTES = BLOCK_TOKENS * ID_BYTES


class _Prefix(NamedTuple):
    """What a block ends: so many tokens of a prompt."""

    model: str
    ids: bytes
    tokens: int


class PrefixCache:
    """A bounded, least-recently-used set of blocks."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens // BLOCK_TOKENS
        # What each block ends, where somebody watches.
        self._blocks: OrderedDict[int, _Prefix | None] = OrderedDict()
        self.changes: list[card_pb2.CacheEvent] | None = None
        """What has happened since it was looked at last; None while nobody watches."""

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

    def add(self, blocks: Sequence[int], ids: bytes = b"", model: str = "") -> None:
        """Hold the blocks of a prompt; drop the longest unused where there is no room.

        Args:
            blocks: of the prompt.
            ids: the prompt, for those who watch.
            model: its model, likewise.
        """
        held = self._blocks
        if self.changes is not None and ids:
            self._add_watched(blocks, ids, model, self.changes)
            return
        # Backwards: without its first blocks a prefix is worth nothing, so they are dropped last.
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._capacity:
            held.popitem(last=False)

    def _add_watched(
        self, blocks: Sequence[int], ids: bytes, model: str, changes: list[card_pb2.CacheEvent]
    ) -> None:
        held = self._blocks
        if blocks and blocks[-1] not in held:
            stored = card_pb2.CachedPrefix(model=model, ids=ids[: len(blocks) * _BLOCK_BYTES])
            changes.append(card_pb2.CacheEvent(stored_prefixes=[stored]))
        # An event of its own: what was stored may have found no room.
        event = card_pb2.CacheEvent()
        for place in range(len(blocks), 0, -1):
            held[blocks[place - 1]] = _Prefix(model, ids, place * BLOCK_TOKENS)
            held.move_to_end(blocks[place - 1])
        last: _Prefix | None = None
        while len(held) > self._capacity:
            _, gone = held.popitem(last=False)
            if gone is None:
                continue
            kept = gone.tokens - BLOCK_TOKENS
            if last is not None and last.ids is gone.ids and last.tokens == gone.tokens:
                # The next block before the one that has just gone.
                event.evicted_prefixes[-1].kept_tokens = kept
            else:
                event.evicted_prefixes.add(
                    model=gone.model, ids=gone.ids[: gone.tokens * ID_BYTES], kept_tokens=kept
                )
            last = gone._replace(tokens=kept)
        if event.evicted_prefixes:
            changes.append(event)

    def flush(self, used: Iterable[Sequence[int]]) -> int:
        """Drop all blocks but those of the prompts in use. Returns the number of tokens dropped."""
        kept = {block for blocks in used for block in blocks}
        before = len(self._blocks)
        self._blocks = OrderedDict((block, prefix) for block, prefix in self._blocks.items() if block in kept)
        if self.changes is not None:
            self.changes.append(card_pb2.CacheEvent(cleared=True))
        return (before - len(self._blocks)) * BLOCK_TOKENS


def prompt_blocks(prompt_ids: bytes, model: str) -> list[int]:
    """The blocks of a prompt for one model, first to last. The last token is in none."""
    blocks: list[int] = []
    chain = hash(model)
    for start in range(0, len(prompt_ids) - _BLOCK_BYTES, _BLOCK_BYTES):
        chain = hash((chain, prompt_ids[start : start + _BLOCK_BYTES]))
        blocks.append(chain)
    return blocks
