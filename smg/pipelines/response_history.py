"""What was said before a response: the chain that it follows, or the conversation that it is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from smg.errors import InternalError, InvalidRequest, NotFound, StorageFailed
from smg.pipelines.off_loop import off_loop

if TYPE_CHECKING:
    from smg.responses.request import ResponseCall
    from smg.responses.shapes import Json
    from smg.storage.base import HistoryStore
    from smg.storage.records import StoredItem, StoredResponse


class ResponseHistory:
    """Reads what was said before.

    Args:
        store: where it is.
        longest_chain: most responses of a chain that the model is shown; of a longer one the newest.
        most_items: most items of a conversation that the model is shown; of a longer one the newest.
    """

    def __init__(self, store: HistoryStore, longest_chain: int, most_items: int) -> None:
        self._store = store
        self._longest_chain = longest_chain
        self._most_items = most_items

    async def before(self, tenant: str, call: ResponseCall) -> list[Json]:
        """The items before a request's own, the oldest first.

        Raises:
            InvalidRequest: the response that it follows, or one before that, is not there.
            NotFound: the conversation is not there.
            InternalError: the store does not answer.
        """
        message = call.message
        if message.previous_response_id:
            return await self._chain(tenant, message.previous_response_id)
        if message.conversation:
            return await self._conversation(tenant, message.conversation)
        return []

    async def _chain(self, tenant: str, response_id: str) -> list[Json]:
        try:
            chain = await self._store.chain(tenant, response_id, self._longest_chain)
        except NotFound as error:
            missing = error.param or response_id
            link = "" if missing == response_id else f", which {response_id[:80]!r} follows,"
            raise InvalidRequest(
                f"Previous response with id {missing[:80]!r}{link} not found.",
                code="previous_response_not_found",
                param="previous_response_id",
            ) from error
        except StorageFailed as error:
            raise InternalError(error.message, code="load_previous_response_chain_failed") from error
        size = sum(len(each.body_json) + len(each.input_json) for each in chain)
        return await off_loop(lambda: _chain_items(chain), size=size)

    async def _conversation(self, tenant: str, conversation_id: str) -> list[Json]:
        try:
            page = await self._store.items(tenant, conversation_id, self._most_items, newest_first=True)
        except StorageFailed as error:
            raise InternalError(error.message, code="check_conversation_failed") from error
        if page is None:
            raise NotFound(
                f"Conversation '{conversation_id[:80]}' not found. Please create the conversation first using the "
                "conversations API.",
                code="conversation_not_found",
                param="conversation",
            )
        items = page.items
        return await off_loop(lambda: _parsed(items), size=sum(len(item.body_json) for item in items))


def _chain_items(chain: list[StoredResponse]) -> list[Json]:
    items: list[Json] = []
    for response in chain:
        items += orjson.loads(response.input_json)
        body: dict[str, Any] = orjson.loads(response.body_json)
        items += body.get("output") or ()
    return items


def _parsed(newest_first: Any) -> list[Json]:
    stored: list[StoredItem] = list(newest_first)
    return [orjson.loads(item.body_json) for item in reversed(stored)]
