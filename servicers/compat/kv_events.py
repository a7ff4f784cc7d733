"""Tells a subscriber of the engine's prefix cache in blocks, as SGLang's servers do.

Our engines tell prefixes by their token ids. Here they are cut into blocks with chained hashes; a rest that fills no block is
left out. A subscription begins with what happens from then on: nothing is kept to resume from.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from typing import TYPE_CHECKING

from smg_grpc_proto.generated import common_pb2

from servicers.compat.waiting import Waiting
from servicers.token_bytes import ID_BYTES, ids_from_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smg_proto.engine.v1 import card_pb2, engine_pb2

BLOCK_TOKENS = 16
_BLOCK_BYTES = BLOCK_TOKENS * ID_BYTES


class CacheSubscription:
    """One subscriber: an EventSink that hears of the cache alone."""

    def __init__(self, model: str, max_unsent: int) -> None:
        """Prepare.

        Args:
            model: whose cache is told of: servers of this protocol have one model.
            max_unsent: batches that may wait for the subscriber; with more it has to begin anew.
        """
        self._model = model
        self._max_unsent = max_unsent
        self._held: set[int] = set()
        self._batches: deque[common_pb2.KvEventBatch] = deque()
        self._waiting = Waiting()
        self._number = 0
        self.has_overflown = False
        """The subscriber has not read; what it knows is no longer true."""

    @property
    def unsent_events(self) -> int:
        """Batches that wait."""
        return len(self._batches)

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Take an event. Part of EventSink."""
        batch = common_pb2.KvEventBatch(timestamp=time.time())  # noqa: TID251 -- told as a date
        for change in event.cache:
            batch.events.extend(self._events(change))
        if not batch.events:
            return
        self._number += 1
        batch.sequence_number = self._number
        if len(self._batches) >= self._max_unsent:
            self.has_overflown = True
        else:
            self._batches.append(batch)
        self._waiting.wake()

    async def take(self) -> list[common_pb2.KvEventBatch]:
        """The batches that wait; waits for one. Empty when the subscriber has to begin anew."""
        while not self._batches and not self.has_overflown:
            await self._waiting.wait()
        taken = list(self._batches)
        self._batches.clear()
        return taken

    def _events(self, change: card_pb2.CacheEvent) -> Iterator[common_pb2.KvCacheEvent]:
        if change.cleared:
            self._held.clear()
            yield common_pb2.KvCacheEvent(cleared=common_pb2.KvCacheCleared())
        for prefix in change.evicted_prefixes:
            if self._is_of_model(prefix):
                gone = [key for key, _ in list(_blocks(prefix.ids))[prefix.kept_tokens // BLOCK_TOKENS :]]
                gone = [key for key in gone if key in self._held]
                self._held.difference_update(gone)
                if gone:
                    # The last first: without what is before it a block is worth nothing.
                    yield common_pb2.KvCacheEvent(
                        removed=common_pb2.KvBlocksRemoved(block_hashes=reversed(gone))
                    )
        for prefix in change.stored_prefixes:
            if self._is_of_model(prefix) and (stored := self._stored(prefix.ids)):
                yield common_pb2.KvCacheEvent(stored=stored)

    def _is_of_model(self, prefix: card_pb2.CachedPrefix) -> bool:
        return prefix.model in ("", self._model)

    def _stored(self, ids: bytes) -> common_pb2.KvBlocksStored | None:
        """What is new of a prefix."""
        stored = common_pb2.KvBlocksStored()
        for key, block in _blocks(ids):
            if key not in self._held:
                stored.blocks.add(block_hash=key, token_ids=ids_from_bytes(block), block_size=BLOCK_TOKENS)
                self._held.add(key)
            elif not stored.blocks:
                stored.parent_block_hash = key
        return stored if stored.blocks else None


def _blocks(ids: bytes) -> Iterator[tuple[int, bytes]]:
    """Hash and ids of each whole block of a prefix. A hash stands for the block and all before it."""
    before = b""
    for start in range(0, len(ids) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        block = ids[start : start + _BLOCK_BYTES]
        before = hashlib.blake2b(before + block, digest_size=8).digest()
        yield int.from_bytes(before, "big", signed=True), block
