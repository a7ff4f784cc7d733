"""No history: everything is forgotten at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.storage.records import Conversation, ItemPage, StoredItem, StoredResponse


class NoStore:
    """The store that keeps nothing. Whoever asks finds nothing; that is no fault."""

    async def open(self) -> None:
        """See HistoryStore."""

    async def close(self) -> None:
        """See HistoryStore."""

    async def put_response(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> None:
        """Forget it."""

    async def replace_running(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> bool:
        """True: nobody else can have ended it."""
        del tenant, response, items
        return True

    async def renew(self, running: Sequence[tuple[str, str]], lease_until: int) -> set[tuple[str, str]]:
        """All of them."""
        del lease_until
        return set(running)

    async def response(self, tenant: str, response_id: str) -> StoredResponse | None:
        """None."""
        del tenant, response_id

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """False."""
        del tenant, response_id
        return False

    async def chain(self, tenant: str, response_id: str, longest: int) -> list[StoredResponse]:
        """Never found."""
        del tenant, longest
        raise NotFound(f"response {response_id!r} is not stored", param=response_id)

    async def put_conversation(self, tenant: str, conversation: Conversation) -> None:
        """Forget it."""

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """None."""
        del tenant, conversation_id

    async def merge_metadata(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None], most: int
    ) -> Conversation | None:
        """None."""
        del tenant, conversation_id, changes, most

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """False."""
        del tenant, conversation_id
        return False

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[StoredItem | str]
    ) -> list[StoredItem] | None:
        """None."""
        del tenant, conversation_id, items

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage | None:
        """None."""
        del tenant, conversation_id, limit, newest_first, after

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem | None:
        """None."""
        del tenant, conversation_id, item_id

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """False."""
        del tenant, conversation_id, item_id
        return False

    async def purge(self, before: int) -> int:
        """0."""
        del before
        return 0
