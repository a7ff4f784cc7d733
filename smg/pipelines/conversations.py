"""Conversations: what may be done with them, over HTTP and gRPC alike."""

from __future__ import annotations

import secrets
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from smg.errors import InvalidRequest, NotFound
from smg.responses.items import checked_item, warning_of
from smg.storage.metadata import merged
from smg.storage.records import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from smg.storage.base import HistoryStore
    from smg.storage.records import ItemPage, StoredItem

FoundT = TypeVar("FoundT")
MAX_PROPERTIES = 16
MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 64 * 1024
MAX_NEW_ITEMS = 20
MAX_PAGE = 100
CONVERSATION_PREFIX = "conv_"


class AddedItems(NamedTuple):
    """Items as they are kept, and what has to be said about them."""

    items: list[StoredItem]
    warnings: list[str]


class Conversations:
    """The operations on one store. Each belongs to a tenant, who sees nothing of the others."""

    def __init__(self, store: HistoryStore, now: Callable[[], float] = time.time) -> None:  # noqa: TID251 - kept with what is stored
        """Args: now tells Unix time in seconds."""
        self._store = store
        self._now = now

    async def create(
        self, tenant: str, metadata: Mapping[str, str], items: Sequence[object] = ()
    ) -> Conversation:
        """Begin a conversation.

        Raises:
            InvalidRequest: metadata or items are not as they must be.
        """
        created_at = int(self._now())
        checked = self._checked(items)
        pairs = merged({}, _checked_metadata(metadata), MAX_PROPERTIES)
        conversation = Conversation(
            CONVERSATION_PREFIX + secrets.token_hex(25), created_at, MappingProxyType(pairs)
        )
        await self._store.put_conversation(tenant, conversation)
        if checked:
            await self._store.add_items(tenant, conversation.id, checked)
        return conversation

    async def get(self, tenant: str, conversation_id: str) -> Conversation:
        """One conversation.

        Raises:
            NotFound: there is none.
        """
        return _there(await self._store.conversation(tenant, conversation_id))

    async def update(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None]
    ) -> Conversation:
        """Merge metadata; None deletes.

        Raises:
            NotFound: there is no such conversation.
            InvalidRequest: it would have too many properties, or too long ones.
        """
        _checked_metadata(changes)
        return _there(await self._store.merge_metadata(tenant, conversation_id, changes, MAX_PROPERTIES))

    async def delete(self, tenant: str, conversation_id: str) -> None:
        """Forget one.

        Raises:
            NotFound: there is none.
        """
        if not await self._store.delete_conversation(tenant, conversation_id):
            raise _unknown()

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage:
        """A page of items; a limit of 0, or beyond 100, is 100.

        Raises:
            NotFound: there is no such conversation, or no such item to begin after.
        """
        limit = min(limit or MAX_PAGE, MAX_PAGE)
        page = await self._store.items(tenant, conversation_id, limit, newest_first=newest_first, after=after)
        return _there(page)

    async def add(self, tenant: str, conversation_id: str, items: Sequence[object]) -> AddedItems:
        """Put items at the end, all or none.

        Raises:
            NotFound: there is no such conversation, or no item that a reference names.
            InvalidRequest: one is no item, there are too many, or the conversation has one already.
        """
        checked = self._checked(items)
        warnings = [warning for item in items if (warning := warning_of(item))]
        added = _there(await self._store.add_items(tenant, conversation_id, checked))
        return AddedItems(added, warnings)

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem:
        """One item.

        Raises:
            NotFound: there is no such conversation, or it has no such item.
        """
        found = await self._store.item(tenant, conversation_id, item_id)
        if found is None:
            await self.get(tenant, conversation_id)
            raise NotFound("Item not found in this conversation", param="item_id")
        return found

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> Conversation:
        """Take an item out; one that is not there stays so. Returns the conversation.

        Raises:
            NotFound: there is no such conversation.
        """
        await self._store.remove_item(tenant, conversation_id, item_id)
        return await self.get(tenant, conversation_id)

    def _checked(self, items: Sequence[object]) -> list[StoredItem | str]:
        if len(items) > MAX_NEW_ITEMS:
            raise InvalidRequest(
                f"items has {len(items)} items; at most {MAX_NEW_ITEMS} are allowed", param="items"
            )
        created_at = int(self._now())
        return [checked_item(index, item, created_at) for index, item in enumerate(items)]


def _checked_metadata(metadata: Mapping[str, str | None]) -> Mapping[str, str | None]:
    for name, text in metadata.items():
        if len(name) > MAX_NAME_CHARS:
            raise InvalidRequest(
                f"metadata has a name of {len(name)} characters; at most {MAX_NAME_CHARS} are allowed",
                param="metadata",
            )
        if text is not None and len(text) > MAX_TEXT_CHARS:
            raise InvalidRequest(
                f"metadata.{name} has {len(text)} characters; at most {MAX_TEXT_CHARS} are allowed",
                param="metadata",
            )
    return metadata


def _unknown() -> NotFound:
    return NotFound("Conversation not found", code="conversation_not_found", param="conversation_id")


def _there(found: FoundT | None) -> FoundT:
    if found is None:
        raise _unknown()
    return found
