"""History in the router's memory: gone with the process, bounded in number, bytes and age.

What was not used for longest goes first. A conversation goes with all its items.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.storage.chains import join_chain
from smg.storage.metadata import merged
from smg.storage.records import Conversation, ItemPage, StoredItem, StoredResponse
from smg.storage.taken import refuse_repeated, taken, unknown_item

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_OVERHEAD = 400  # bytes of the objects around a text, about
_SWEEP_S = 60.0


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """What the store may hold, all tenants together.

    Attributes:
        responses: most responses.
        items: most items of conversations.
        size_bytes: most bytes of texts, about.
        age_s: longest time since something was written; 0 for any.
    """

    responses: int
    items: int
    size_bytes: int
    age_s: float = 0.0


@dataclass(slots=True)
class _Thread:
    """A conversation and its items, in order."""

    conversation: Conversation
    written_at: float
    items: dict[str, StoredItem] = field(default_factory=dict[str, StoredItem])


class MemoryStore:
    """The store. `clock` tells seconds that never go back."""

    def __init__(self, bounds: MemoryBounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._clock = clock
        self._responses: OrderedDict[tuple[str, str], tuple[StoredResponse, float]] = OrderedDict()
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()
        # In how many conversations an item is.
        self._shared: dict[tuple[str, str], list[_Thread]] = {}
        self.size_bytes = 0
        self.item_count = 0
        self._next_sweep = 0.0

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Forget everything."""
        self._responses.clear()
        self._threads.clear()
        self._shared.clear()
        self.size_bytes = self.item_count = 0

    async def put_response(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> None:
        """See HistoryStore."""
        key = tenant, response.id
        self._drop_response(key)
        self._responses[key] = response, self._clock()
        self.size_bytes += _response_bytes(response)
        thread = self._thread(tenant, response.conversation_id) if items else None
        if thread is not None:
            for item in items:
                if item.id not in thread.items:
                    self._link(tenant, thread, item)
            thread.written_at = self._clock()
        self._make_room()

    async def replace_running(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> bool:
        """See HistoryStore."""
        found = self._responses.get((tenant, response.id))
        if found is None or not found[0].lease_until:
            return False
        await self.put_response(tenant, response, items)
        return True

    async def renew(self, running: Sequence[tuple[str, str]], lease_until: int) -> set[tuple[str, str]]:
        """See HistoryStore."""
        still: set[tuple[str, str]] = set()
        for key in running:
            found = self._responses.get(key)
            if found is not None and found[0].lease_until:
                self._responses[key] = replace(found[0], lease_until=lease_until), self._clock()
                self._responses.move_to_end(key)
                still.add(key)
        return still

    async def response(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See HistoryStore."""
        found = self._responses.get((tenant, response_id))
        if found is None or self._is_old(found[1]):
            return None
        self._responses.move_to_end((tenant, response_id))
        return found[0]

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """See HistoryStore."""
        return self._drop_response((tenant, response_id))

    async def chain(self, tenant: str, response_id: str, longest: int) -> list[StoredResponse]:
        """See HistoryStore."""
        found: dict[str, StoredResponse] = {}
        wanted = response_id
        while wanted and wanted not in found and len(found) < longest:
            response = await self.response(tenant, wanted)
            if response is None:
                break
            found[wanted] = response
            wanted = response.previous_id
        return join_chain(response_id, found, longest)

    async def put_conversation(self, tenant: str, conversation: Conversation) -> None:
        """See HistoryStore."""
        self._threads[tenant, conversation.id] = _Thread(conversation, self._clock())
        self.size_bytes += _conversation_bytes(conversation)
        self._make_room()

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        return thread.conversation if thread else None

    async def merge_metadata(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None], most: int
    ) -> Conversation | None:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        if thread is None:
            return None
        before = thread.conversation
        after = replace(before, metadata=MappingProxyType(merged(before.metadata, changes, most)))
        thread.conversation = after
        thread.written_at = self._clock()
        self.size_bytes += _conversation_bytes(after) - _conversation_bytes(before)
        self._make_room()
        return after

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """See HistoryStore."""
        return self._drop_thread((tenant, conversation_id))

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[StoredItem | str]
    ) -> list[StoredItem] | None:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        if thread is None:
            return None
        refuse_repeated(items)
        known = [self._known(tenant, thread, item) for item in items]
        for item in known:
            self._link(tenant, thread, item)
        thread.written_at = self._clock()
        self._make_room()
        return known

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage | None:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        if thread is None:
            return None
        if after and after not in thread.items:
            raise unknown_item(after)
        ordered = list(thread.items.values())
        if newest_first:
            ordered.reverse()
        if after:
            ordered = ordered[1 + next(n for n, item in enumerate(ordered) if item.id == after) :]
        return ItemPage(ordered[:limit], len(ordered) > limit)

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem | None:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        return thread.items.get(item_id) if thread else None

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """See HistoryStore."""
        thread = self._thread(tenant, conversation_id)
        if thread is None or item_id not in thread.items:
            return False
        self._unlink(tenant, thread, item_id)
        return True

    async def purge(self, before: int) -> int:
        """See HistoryStore."""
        responses = [key for key, (kept, _) in self._responses.items() if kept.created_at < before]
        threads = [key for key, thread in self._threads.items() if thread.conversation.created_at < before]
        return sum(map(self._drop_response, responses)) + sum(map(self._drop_thread, threads))

    def _thread(self, tenant: str, conversation_id: str) -> _Thread | None:
        thread = self._threads.get((tenant, conversation_id))
        if thread is None or self._is_old(thread.written_at):
            return None
        self._threads.move_to_end((tenant, conversation_id))
        return thread

    def _known(self, tenant: str, thread: _Thread, item: StoredItem | str) -> StoredItem:
        item_id = item if isinstance(item, str) else item.id
        if item_id in thread.items:
            raise taken(item_id)
        elsewhere = self._shared.get((tenant, item_id))
        if elsewhere:
            return elsewhere[0].items[item_id]
        if isinstance(item, str):
            raise unknown_item(item)
        return item

    def _link(self, tenant: str, thread: _Thread, item: StoredItem) -> None:
        sharing = self._shared.setdefault((tenant, item.id), [])
        if sharing:
            item = sharing[0].items[item.id]
        else:
            self.size_bytes += _item_bytes(item)
        sharing.append(thread)
        thread.items[item.id] = item
        self.item_count += 1

    def _unlink(self, tenant: str, thread: _Thread, item_id: str) -> None:
        item = thread.items.pop(item_id)
        self.item_count -= 1
        sharing = self._shared[tenant, item_id]
        sharing[:] = [other for other in sharing if other is not thread]
        if not sharing:
            del self._shared[tenant, item_id]
            self.size_bytes -= _item_bytes(item)

    def _drop_response(self, key: tuple[str, str]) -> bool:
        found = self._responses.pop(key, None)
        if found is None:
            return False
        self.size_bytes -= _response_bytes(found[0])
        return True

    def _drop_thread(self, key: tuple[str, str]) -> bool:
        thread = self._threads.pop(key, None)
        if thread is None:
            return False
        for item_id in list(thread.items):
            self._unlink(key[0], thread, item_id)
        self.size_bytes -= _conversation_bytes(thread.conversation)
        return True

    def _is_old(self, written_at: float) -> bool:
        age_s = self._bounds.age_s
        return bool(age_s) and self._clock() - written_at > age_s

    def _forget_old(self) -> None:
        """Look at everything, but not often."""
        if not self._bounds.age_s or self._clock() < self._next_sweep:
            return
        self._next_sweep = self._clock() + min(_SWEEP_S, self._bounds.age_s)
        for key in [key for key, (_, at) in self._responses.items() if self._is_old(at)]:
            self._drop_response(key)
        for key in [key for key, thread in self._threads.items() if self._is_old(thread.written_at)]:
            self._drop_thread(key)

    def _make_room(self) -> None:
        self._forget_old()
        bounds = self._bounds
        while len(self._responses) > bounds.responses:
            self._drop_response(next(iter(self._responses)))
        while self.item_count > bounds.items and len(self._threads) > 1:
            self._drop_thread(next(iter(self._threads)))
        while self.size_bytes > bounds.size_bytes and len(self._responses) + len(self._threads) > 1:
            if len(self._responses) > 1 or not self._threads:
                self._drop_response(next(iter(self._responses)))
            else:
                self._drop_thread(next(iter(self._threads)))


def _item_bytes(item: StoredItem) -> int:
    return _OVERHEAD + len(item.id) + len(item.body_json)


def _response_bytes(response: StoredResponse) -> int:
    return _OVERHEAD + len(response.body_json) + len(response.input_json)


def _conversation_bytes(conversation: Conversation) -> int:
    return _OVERHEAD + sum(len(name) + len(text) for name, text in conversation.metadata.items())
