"""Turns the block events of SGLang's and vLLM's prefix caches into prefixes of token ids.

Those engines tell of blocks: a hash, the hash of the block before, and the block's own tokens. A prefix is found by walking
up from a block. Pure; what is kept is bounded: the blocks heard of longest ago are forgotten, and what comes of them later
is left out. Format: KvEventBatch in common.proto of smg-grpc-proto.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg_grpc_proto.generated import common_pb2

from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Data-parallel rank, and the engine's hash of a block.
    _Key = tuple[int, int]

_OUTSIDE = common_pb2.KvCacheTier.KV_CACHE_TIER_EXTERNAL
_REMOTE = common_pb2.KvCacheLocality.KV_CACHE_LOCALITY_REMOTE
_CLEARED = card_pb2.CacheEvent(cleared=True)


class KvGap(Exception):
    """Events are missing: what is known of the cache is no longer true."""


@dataclass(slots=True)
class _Block:
    """A block that the engine holds.

    Attributes:
        parent: the block before; None for the first of a text.
        ids: its tokens, four bytes each.
        tokens_before: tokens of the blocks before.
        copies: times it is held; each tier of a cache counts, and engines keep doubles.
    """

    parent: _Key | None
    ids: bytes
    tokens_before: int
    copies: int = 1


class KvBlocks:
    """What one server holds, as it has told."""

    def __init__(self, max_blocks: int) -> None:
        """Args: max_blocks: most that are kept."""
        self._max_blocks = max_blocks
        self._blocks: OrderedDict[_Key, _Block] = OrderedDict()
        self._cursors: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def resume_at(self) -> int:
        """Number to subscribe from: the last one seen, which is told again; 0 for what the server holds now.

        A subscription names one number, and every rank has its own: with several there is no resuming.
        """
        return next(iter(self._cursors.values())) if len(self._cursors) == 1 else 0

    def forget(self) -> card_pb2.CacheEvent:
        """Know nothing any more. Returns what to tell."""
        self._blocks.clear()
        self._cursors.clear()
        return _CLEARED

    def take(self, batch: common_pb2.KvEventBatch) -> list[card_pb2.CacheEvent]:
        """Take a batch. Returns what has changed, in order.

        Raises:
            KvGap: batches are missing before it.
        """
        if batch.load.load_only:
            return []
        rank, number = batch.dp_rank, batch.sequence_number
        cursor = self._cursors.get(rank)
        if cursor is not None and not batch.HasField("snapshot"):
            if number <= cursor:
                return []
            if number != cursor + 1:
                raise KvGap(f"event {number} of rank {rank} came after {cursor}")
        self._cursors[rank] = number
        changes: list[card_pb2.CacheEvent] = []
        for event in batch.events:
            kind = event.WhichOneof("data")
            if kind == "stored":
                self._store(rank, event.stored, changes)
            elif kind == "removed":
                self._remove(rank, event.removed.block_hashes, changes)
            elif kind == "cleared":
                self._clear(rank)
                changes.append(_CLEARED)
        return changes

    def _store(
        self, rank: int, stored: common_pb2.KvBlocksStored, changes: list[card_pb2.CacheEvent]
    ) -> None:
        # Of an adapter, a tenant or another machine's memory: not what a prompt of ours would find.
        if stored.lora_name or stored.cache_salt or stored.tier == _OUTSIDE or stored.locality == _REMOTE:
            return
        parent: _Key | None = None
        tokens_before = 0
        if stored.HasField("parent_block_hash"):
            parent = (rank, stored.parent_block_hash)
            before = self._blocks.get(parent)
            if before is None:
                return
            tokens_before = before.tokens_before + len(before.ids) // 4
        has_new = False
        for block in stored.blocks:
            if block.extra_keys or block.lora_id:
                # More than its tokens went into it: an image, say. What follows hangs on it.
                break
            key = (rank, block.block_hash)
            known = self._blocks.get(key)
            if known is not None:
                known.copies += 1
                self._blocks.move_to_end(key)
            else:
                has_new = True
                self._blocks[key] = _Block(parent, array("I", block.token_ids).tobytes(), tokens_before)
            parent = key
            tokens_before += len(block.token_ids)
        if has_new and parent is not None and (ids := self._prefix(parent)):
            changes.append(card_pb2.CacheEvent(stored_prefixes=[card_pb2.CachedPrefix(ids=ids)]))
        while len(self._blocks) > self._max_blocks:
            self._blocks.popitem(last=False)

    def _remove(self, rank: int, hashes: Sequence[int], changes: list[card_pb2.CacheEvent]) -> None:
        for block_hash in hashes:
            key = (rank, block_hash)
            block = self._blocks.get(key)
            if block is None:
                continue
            block.copies -= 1
            if block.copies:
                continue
            ids = self._prefix(key)
            del self._blocks[key]
            if ids:
                gone = card_pb2.CachedPrefix(ids=ids, kept_tokens=block.tokens_before)
                changes.append(card_pb2.CacheEvent(evicted_prefixes=[gone]))

    def _clear(self, rank: int) -> None:
        for key in [key for key in self._blocks if key[0] == rank]:
            del self._blocks[key]

    def _prefix(self, key: _Key) -> bytes:
        """All tokens up to a block's end; nothing when a block before has been forgotten."""
        parts: list[bytes] = []
        at: _Key | None = key
        while at is not None:
            block = self._blocks.get(at)
            if block is None:
                return b""
            parts.append(block.ids)
            at = block.parent
        parts.reverse()
        return b"".join(parts)
