"""Remembers which tokens each KV slot holds and finds a slot for a new prompt, with as much of it as possible.

A slot keeps its tokens when its sequence ends, until another prompt needs the room; the least recently used goes
first. A prefix counts token by token: slot contents and prompt must be equal. The compute thread owns the slots;
only flush() and used_tokens() may be called from elsewhere, so the table is behind a lock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from servicers.media_keys import KEY_BIT, WIRE_BIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

TAIL_SHARE = 0.25
"""A prompt takes over a slot that has the prefix only if it overwrites at most this share of it; else it copies."""


class SlotMemory(Protocol):
    """The part of a KVCache that moves prefixes."""

    slots: int
    slot_tokens: int

    def copy_prefix(self, source: int, target: int, tokens: int) -> None:
        """Make the first `tokens` tokens of slot `target` those of slot `source`."""
        ...


class Lease(NamedTuple):
    """A slot that was given to a prompt, and the number of its leading tokens that are in it already."""

    slot: int
    cached_tokens: int


class Change(NamedTuple):
    """A prefix that can now be reused, or one of which only the first tokens are left.

    Attributes:
        ids: packed.
        kept_tokens: how many are left; None for one that was stored.
    """

    ids: bytes
    kept_tokens: int | None


class PrefixCache:
    """The table of slots. See the module's text for which methods other threads may call."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._ids = np.zeros((memory.slots, memory.slot_tokens), dtype=np.int64)
        self._lengths = np.zeros(memory.slots, dtype=np.int64)
        self._is_free = np.ones(memory.slots, dtype=bool)
        self._last_use = np.zeros(memory.slots, dtype=np.int64)
        self._clock = 0
        self._lock = threading.Lock()
        self.is_watched = False
        """Changes are taken down for take_changes()."""
        self._changes: list[Change] = []

    @property
    def capacity_tokens(self) -> int:
        """Tokens that fit in all slots together."""
        return self._memory.slots * self._memory.slot_tokens

    @property
    def has_free_slot(self) -> bool:
        """Whether acquire() would succeed."""
        return bool(self._is_free.any())

    def used_tokens(self) -> int:
        """Tokens that the slots hold, running or kept. Any thread."""
        with self._lock:
            return int(self._lengths.sum())

    def evictable_tokens(self) -> int:
        """Tokens that free slots keep. Any thread."""
        with self._lock:
            return int(self._lengths[self._is_free].sum())

    def flush(self) -> int:
        """Forget the tokens of every free slot. Returns how many there were. Any thread."""
        with self._lock:
            dropped = int(self._lengths[self._is_free].sum())
            self._lengths[self._is_free] = 0
        return dropped

    def match(self, prompt: Ids, limit: int) -> int:
        """Tokens of the prompt, at most `limit`, that some slot holds now."""
        with self._lock:
            return int(self._matches(prompt, limit).max(initial=0))

    def acquire(self, prompt: Ids, limit: int) -> Lease:
        """Take a free slot for a prompt and put the longest known prefix into it. There must be one.

        Args:
            prompt: all ids of the prompt.
            limit: most tokens that may come from the cache.
        """
        with self._lock:
            matches = self._matches(prompt, limit)
            source = self._best_source(matches)
            cached = int(matches[source])
            target = self._target(source, cached)
            if self.is_watched:
                self._note_eviction(target, cached if target == source else 0)
            self._is_free[target] = False
            self._lengths[target] = cached
            self._ids[target, :cached] = prompt[:cached]
            if cached:
                self._touch(source)
            self._touch(target)
        # Only this thread writes slots, so the source's tokens stay in memory even if flush() forgets them now.
        if source != target and cached:
            self._memory.copy_prefix(source, target, cached)
        return Lease(target, cached)

    def extend(self, slot: int, ids: Ids) -> None:
        """The next tokens of a taken slot are computed."""
        with self._lock:
            start = self._lengths[slot]
            self._ids[slot, start : start + len(ids)] = ids
            self._lengths[slot] += len(ids)

    def append(self, slots: Sequence[int], ids: Ids) -> None:
        """One more token of each of these taken slots is computed. The slots are distinct."""
        index = np.asarray(slots)
        with self._lock:
            self._ids[index, self._lengths[index]] = ids
            self._lengths[index] += 1

    def release(self, slot: int, *, keep: bool) -> None:
        """Give a slot back; its tokens can be reused if `keep`."""
        with self._lock:
            self._is_free[slot] = True
            if self.is_watched:
                if keep:
                    self._changes.append(Change(_packed(self._ids[slot, : self._lengths[slot]]), None))
                else:
                    self._note_eviction(slot, 0)
            if not keep:
                self._lengths[slot] = 0
            self._touch(slot)

    def take_changes(self) -> list[Change]:
        """What has changed since the last call, in order."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def _note_eviction(self, slot: int, kept: int) -> None:
        """The tokens of a slot, but for the first so many, are about to be overwritten."""
        length = int(self._lengths[slot])
        if length <= kept:
            return
        ids = self._ids[slot, :length]
        elsewhere = self._matches(ids, length)
        elsewhere[slot] = kept
        left = int(elsewhere.max())
        if left < length:
            self._changes.append(Change(_packed(ids), left))

    def _touch(self, slot: int) -> None:
        self._clock += 1
        self._last_use[slot] = self._clock

    def _matches(self, prompt: Ids, limit: int) -> NDArray[np.int64]:
        """Length of the common prefix with each slot, at most `limit`."""
        width = min(limit, len(prompt), int(self._lengths.max(initial=0)))
        if width <= 0:
            return np.zeros(len(self._lengths), dtype=np.int64)
        differs = self._ids[:, :width] != prompt[:width]
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
        return np.minimum(first, self._lengths)

    def _best_source(self, matches: NDArray[np.int64]) -> int:
        # Of equal matches a free slot is better (no copy), then one whose tokens end there (nothing overwritten).
        order = np.lexsort((self._lengths, ~self._is_free, -matches))
        return int(order[0])

    def _target(self, source: int, cached: int) -> int:
        if self._is_free[source] and cached:
            overwritten = self._lengths[source] - cached
            if overwritten <= TAIL_SHARE * self._lengths[source]:
                return source
        free = np.flatnonzero(self._is_free)
        # Empty slots first, the lowest of them: neighbouring slots are attended together.
        empty = free[self._lengths[free] == 0]
        return int(empty[0]) if len(empty) else int(free[self._last_use[free].argmin()])


def _packed(ids: Ids) -> bytes:
    """Token ids, and keys of media, as the contract has them."""
    return np.where(ids < KEY_BIT, ids, ids & (WIRE_BIT - 1) | WIRE_BIT).astype("<u4").tobytes()
