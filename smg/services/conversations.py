"""smg.responses.v1.ConversationsService: conversations as typed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from smg.errors import InvalidRequest
from smg.services.call import CONTEXT
from smg.services.methods import CONVERSATIONS_SERVICE
from smg.services.rpc import add_service, unary_method
from smg_proto.responses.v1 import conversations_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc.aio

    from smg.pipelines.conversations import Conversations
    from smg.services.rpc import Context
    from smg.storage.records import Conversation


class ConversationsService:
    """The methods and what keeps the conversations."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "CreateConversation": unary_method(self.create, pb.CreateConversationRequest),
            "GetConversation": unary_method(self.get, pb.GetConversationRequest),
            "UpdateConversation": unary_method(self.update, pb.UpdateConversationRequest),
            "DeleteConversation": unary_method(self.delete, pb.DeleteConversationRequest),
            "ListConversationItems": unary_method(self.items, pb.ListConversationItemsRequest),
            "CreateConversationItems": unary_method(self.add_items, pb.CreateConversationItemsRequest),
            "GetConversationItem": unary_method(self.item, pb.GetConversationItemRequest),
            "DeleteConversationItem": unary_method(self.remove_item, pb.DeleteConversationItemRequest),
        }
        add_service(server, CONVERSATIONS_SERVICE, methods)

    async def create(
        self, request: pb.CreateConversationRequest, _: Context
    ) -> pb.CreateConversationResponse:
        """Begin one."""
        items = _parsed(request.items_json)
        made = await self._conversations.create(_tenant(), dict(request.metadata), items)
        return pb.CreateConversationResponse(conversation=_message(made))

    async def get(self, request: pb.GetConversationRequest, _: Context) -> pb.GetConversationResponse:
        """Tell about one."""
        found = await self._conversations.get(_tenant(), request.id)
        return pb.GetConversationResponse(conversation=_message(found))

    async def update(
        self, request: pb.UpdateConversationRequest, _: Context
    ) -> pb.UpdateConversationResponse:
        """Merge metadata."""
        changes: dict[str, str | None] = dict(request.metadata)
        changes.update(dict.fromkeys(request.delete_metadata))
        found = await self._conversations.update(_tenant(), request.id, changes)
        return pb.UpdateConversationResponse(conversation=_message(found))

    async def delete(
        self, request: pb.DeleteConversationRequest, _: Context
    ) -> pb.DeleteConversationResponse:
        """Forget one."""
        await self._conversations.delete(_tenant(), request.id)
        return pb.DeleteConversationResponse()

    async def items(
        self, request: pb.ListConversationItemsRequest, _: Context
    ) -> pb.ListConversationItemsResponse:
        """List items."""
        page = await self._conversations.items(
            _tenant(),
            request.conversation_id,
            request.limit,
            newest_first=request.order != pb.ITEM_ORDER_ASCENDING,
            after=request.after,
        )
        return pb.ListConversationItemsResponse(
            items_json=[item.body_json for item in page.items], has_more=page.has_more
        )

    async def add_items(
        self, request: pb.CreateConversationItemsRequest, _: Context
    ) -> pb.CreateConversationItemsResponse:
        """Add items."""
        added, warnings = await self._conversations.add(
            _tenant(), request.conversation_id, _parsed(request.items_json)
        )
        return pb.CreateConversationItemsResponse(
            items_json=[item.body_json for item in added], warnings=warnings
        )

    async def item(
        self, request: pb.GetConversationItemRequest, _: Context
    ) -> pb.GetConversationItemResponse:
        """Get one item."""
        found = await self._conversations.item(_tenant(), request.conversation_id, request.item_id)
        return pb.GetConversationItemResponse(item_json=found.body_json)

    async def remove_item(
        self, request: pb.DeleteConversationItemRequest, _: Context
    ) -> pb.DeleteConversationItemResponse:
        """Take one item out."""
        left = await self._conversations.remove(_tenant(), request.conversation_id, request.item_id)
        return pb.DeleteConversationItemResponse(conversation=_message(left))


def _tenant() -> str:
    return CONTEXT.get().caller.tenant


def _message(conversation: Conversation) -> pb.Conversation:
    return pb.Conversation(
        id=conversation.id, created_at=conversation.created_at, metadata=conversation.metadata
    )


def _parsed(texts: Iterable[str]) -> list[Any]:
    """The items that JSON texts say.

    Raises:
        InvalidRequest: one is no JSON.
    """
    items: list[Any] = []
    for index, text in enumerate(texts):
        try:
            items.append(from_json(text, allow_inf_nan=False))
        except ValueError as error:
            where = f"items_json[{index}]"
            raise InvalidRequest(f"{where} is not valid JSON: {error}", param=where) from error
    return items
