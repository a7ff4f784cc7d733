"""Remembers which workers hold which prefixes, by the keys of blocks.py: bounded, and what is unused is forgotten.

What was used lately is in a young table, the rest in an old one. When the young table is full it becomes the old one,
and what nobody has used since the last time is gone: as good as an exact order of use, in less time and half the memory.
The tables are cut into shards, because to drop or to enlarge a big one would hold up the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHARDS = 64
# Below this an index is too small to be worth cutting.
_SMALLEST_SHARDED = 64 * _SHARDS
# A prefix that many hold is searched for holders that are gone each time so many more were added.
_PURGE_EVERY = 64


class Holder:
    """One life of a worker, as the index knows it. After a restart the worker is another holder.

    Attributes:
        worker_id: the router's id of the worker.
        instance_id: the life.
        is_current: the worker still lives that life.
    """

    __slots__ = ("worker_id", "instance_id", "is_current")

    def __init__(self, worker_id: str, instance_id: str) -> None:
        self.worker_id = worker_id
        self.instance_id = instance_id
        self.is_current = True


# Most prefixes have one holder: those need no table. The others have one rather than a set, whose order is chance.
Holders: TypeAlias = "Holder | dict[Holder, None]"


def _count(held: Holders) -> int:
    return 1 if isinstance(held, Holder) else len(held)


class _Shard:
    """Attributes: size: pairs of a prefix and a worker in the young table."""

    __slots__ = ("young", "old", "size")

    def __init__(self) -> None:
        self.young: dict[int, Holders] = {}
        self.old: dict[int, Holders] = {}
        self.size = 0

    def turn(self) -> None:
        """Forget what is old; what is young gets old."""
        self.old, self.young, self.size = self.young, {}, 0


class PrefixIndex:
    """Prefixes and their holders."""

    def __init__(self, capacity: int) -> None:
        """Args: capacity: most pairs of a prefix and a worker. At least half as many are remembered once it is full."""
        count = _SHARDS if capacity >= _SMALLEST_SHARDED else 1
        self._mask = count - 1
        self._shards = [_Shard() for _ in range(count)]
        self._most_young = max(1, capacity // count // 2)

    def __len__(self) -> int:
        return sum(sum(map(_count, shard.old.values())) + shard.size for shard in self._shards)

    def get(self, key: int) -> Holders | None:
        """Who holds a prefix. Not a use of it."""
        shard = self._shards[key & self._mask]
        held = shard.young.get(key)
        return shard.old.get(key) if held is None else held

    def known(self, keys: Sequence[int]) -> int:
        """How many of a prompt's keys are known, counted from its start."""
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high + 1) // 2
            if self.get(keys[middle - 1]) is None:
                high = middle - 1
            else:
                low = middle
        return low

    def add(self, keys: Sequence[int], holder: Holder) -> None:
        """A worker holds these prefixes, given from the shortest to the longest; all of them are used now."""
        shards, mask, most = self._shards, self._mask, self._most_young
        # The shortest is used last: what goes on from it is forgotten first.
        for key in reversed(keys):
            shard = shards[key & mask]
            young = shard.young
            before = young.get(key)
            if before is holder or (isinstance(before, dict) and holder in before):
                continue
            held = shard.old.pop(key, None) if before is None else before
            if held is None or held is holder:
                young[key] = holder
                shard.size += 1
            else:
                shard.size -= 0 if before is None else _count(before)
                young[key] = held = _joined(held, holder)
                shard.size += _count(held)
            if shard.size > most:
                shard.turn()

    def remove(self, keys: Iterable[int], holder: Holder) -> None:
        """A worker holds these prefixes no more."""
        for key in keys:
            shard = self._shards[key & self._mask]
            table = shard.young if key in shard.young else shard.old
            held = table.get(key)
            if held is holder:
                del table[key]
            elif isinstance(held, dict) and holder in held:
                del held[holder]
                if not held:
                    del table[key]
            else:
                continue
            if table is shard.young:
                shard.size -= 1


def _joined(held: Holders, holder: Holder) -> Holders:
    if isinstance(held, Holder):
        return {held: None, holder: None} if held.is_current else holder
    if holder not in held:
        held[holder] = None
        if len(held) % _PURGE_EVERY == 0:
            return {each: None for each in held if each.is_current}
    return held
