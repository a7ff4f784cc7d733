"""What every store does. Ids of one tenant are unknown to every other: a tenant sees what it has stored, nothing else.

A call has happened as a whole when it returns, or not at all when it raises; what has happened outlives the process in
every store but memory. Concurrent writers of one conversation are put in some order; none is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.storage.records import Conversation, ItemPage, StoredItem, StoredResponse


class HistoryStore(Protocol):
    """One store.

    Every method raises StorageFailed when the store cannot be reached or does not answer in time.
    """

    async def open(self) -> None:
        """Connect, and bring the tables up to date. Called once."""
        ...

    async def close(self) -> None:
        """Let go of every connection. Called once."""
        ...

    async def put_response(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> None:
        """Keep a response, in the place of an earlier one of that id; items go to the end of its conversation.

        A conversation that was deleted meanwhile gets nothing; the response is kept all the same. Items that the
        conversation has already are left as they are.
        """
        ...

    async def replace_running(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> bool:
        """Do as put_response does, where a response of that id is kept whose lease_until is not 0.

        Returns: False, and nothing has changed, where it is gone or has ended.
        """
        ...

    async def renew(self, running: Sequence[tuple[str, str]], lease_until: int) -> set[tuple[str, str]]:
        """Vouch for responses that run, by tenant and id. Returns those that do run; others are gone or have ended."""
        ...

    async def response(self, tenant: str, response_id: str) -> StoredResponse | None:
        """The response, or None."""
        ...

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """Forget a response; those that follow it stay. Returns whether there was one."""
        ...

    async def chain(self, tenant: str, response_id: str, longest: int) -> list[StoredResponse]:
        """The response with all that it follows, the oldest first.

        Args:
            tenant: whose.
            response_id: the last.
            longest: most responses to return; of a longer chain the newest.

        Raises:
            NotFound: there is no such response, or one that it follows was deleted; `param` has its id.
        """
        ...

    async def put_conversation(self, tenant: str, conversation: Conversation) -> None:
        """Keep a new conversation."""
        ...

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """The conversation, or None."""
        ...

    async def merge_metadata(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None], most: int
    ) -> Conversation | None:
        """Set texts by name, and delete those that are None. Returns the conversation, or None.

        Raises:
            InvalidRequest: it would have more than `most`; nothing has changed then.
        """
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Forget a conversation, and items that are in no other. Returns whether there was one."""
        ...

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[StoredItem | str]
    ) -> list[StoredItem] | None:
        """Put items at the end of a conversation, all or none.

        Args:
            tenant: whose.
            conversation_id: where to.
            items: new ones, or the ids of those that another conversation has. A new one whose id another
                conversation has is that one.

        Returns: the items as they are now; None where there is no such conversation.

        Raises:
            ItemTaken: the conversation has one of them, or one is named twice.
            NotFound: an id is of no item; `param` has it.
        """
        ...

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage | None:
        """Some items of a conversation, in order.

        Args:
            tenant: whose.
            conversation_id: which.
            limit: most items.
            newest_first: the order.
            after: the id of the item before the first in that order; empty to begin with the first.

        Returns: the items; None where there is no such conversation.

        Raises:
            NotFound: `after` is no item of the conversation; `param` has it.
        """
        ...

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem | None:
        """The item, where the conversation has it; else None."""
        ...

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; it goes when no other has it. Returns whether it was there."""
        ...

    async def purge(self, before: int) -> int:
        """Forget responses and conversations that are older than a Unix time. Returns how many."""
        ...
