"""Conversations over HTTP: /v1/conversations and what is below it.

Errors here have a form of their own, as S1 has them: {"error": text}; two of them the common form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

import orjson
from pydantic_core import from_json

from gateway.errors import error_answer
from gateway.whole import answer, answer_json
from smg.errors import InvalidInclude, InvalidRequest, ItemTaken, Overloaded, SmgError, WorkerUnavailable
from smg.pipelines.conversations import MAX_PAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from smg.pipelines.conversations import Conversations
    from smg.storage.records import Conversation, StoredItem

JSON = b"application/json"
INCLUDABLE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)


class ConversationHandlers:
    """The handlers and what keeps the conversations."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def create(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/conversations."""

        async def do() -> bytes:
            body = _body(request)
            items: Any = body.get("items")
            if items is None:
                items = []
            if not isinstance(items, list):
                raise InvalidRequest("items must be an array")
            made = await self._conversations.create(
                _tenant(request), _set_texts(_metadata(body)), cast("list[object]", items)
            )
            return conversation_json(made)

        await _answering(request, reply, do)

    async def get(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/conversations/{id}."""

        async def do() -> bytes:
            return conversation_json(await self._conversations.get(_tenant(request), _id(request)))

        await _answering(request, reply, do)

    async def update(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/conversations/{id}."""

        async def do() -> bytes:
            changes = _metadata(_body(request))
            found = await self._conversations.update(_tenant(request), _id(request), changes)
            return conversation_json(found)

        await _answering(request, reply, do)

    async def delete(self, request: HttpRequest, reply: Reply) -> None:
        """DELETE /v1/conversations/{id}."""

        async def do() -> bytes:
            await self._conversations.delete(_tenant(request), _id(request))
            return orjson.dumps({"id": _id(request), "object": "conversation.deleted", "deleted": True})

        await _answering(request, reply, do)

    async def items(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/conversations/{id}/items."""

        async def do() -> bytes:
            query = dict(parse_qsl(request.query, keep_blank_values=True))
            limit = _limit(query.get("limit", ""))
            page = await self._conversations.items(
                _tenant(request),
                _id(request),
                limit,
                newest_first=query.get("order") != "asc",
                after=query.get("after", ""),
            )
            # S1: a full page has more, even where the next one is empty.
            return list_json(page.items, has_more=page.has_more or len(page.items) == limit)

        await _answering(request, reply, do)

    async def add_items(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/conversations/{id}/items."""

        async def do() -> bytes:
            items: Any = _body(request).get("items")
            if not isinstance(items, list):
                raise InvalidRequest("items must be an array")
            new = cast("list[object]", items)
            added, warnings = await self._conversations.add(_tenant(request), _id(request), new)
            return list_json(added, has_more=False, warnings=warnings)

        await _answering(request, reply, do)

    async def item(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/conversations/{id}/items/{item_id}."""

        async def do() -> bytes:
            _check_include(request)
            item_id = request.parameters["item_id"]
            found = await self._conversations.item(_tenant(request), _id(request), item_id)
            return found.body_json.encode()

        await _answering(request, reply, do)

    async def remove_item(self, request: HttpRequest, reply: Reply) -> None:
        """DELETE /v1/conversations/{id}/items/{item_id}."""

        async def do() -> bytes:
            item_id = request.parameters["item_id"]
            left = await self._conversations.remove(_tenant(request), _id(request), item_id)
            return conversation_json(left)

        await _answering(request, reply, do)


def refusal(error: SmgError) -> tuple[int, list[Header], bytes]:
    """The answer to what comes before a handler: for want of a place in the form of these paths, else the common one."""
    status, headers, body = error_answer(error)
    if isinstance(error, (Overloaded, WorkerUnavailable)):
        headers = [header for header in headers if header[0] != b"x-smg-error-code"]
        body = orjson.dumps({"error": error.message})
    return status, headers, body


def conversation_json(conversation: Conversation) -> bytes:
    """A conversation as the API shows it."""
    return orjson.dumps(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": conversation.created_at,
            "metadata": dict(conversation.metadata),
        }
    )


def list_json(items: Sequence[StoredItem], *, has_more: bool, warnings: Sequence[str] = ()) -> bytes:
    """A page of items as the API shows it. The items are JSON already."""
    around: dict[str, object] = {
        "has_more": has_more,
        "first_id": items[0].id if items else None,
        "last_id": items[-1].id if items else None,
    }
    if warnings:
        around["warnings"] = warnings
    data = ",".join([item.body_json for item in items]).encode()
    return b'{"object":"list","data":[%b],%b' % (data, orjson.dumps(around)[1:])


async def _answering(request: HttpRequest, reply: Reply, do: Callable[[], Awaitable[bytes]]) -> None:
    try:
        body = await do()
    except (ItemTaken, InvalidInclude) as error:
        told = {
            "message": error.message,
            "type": "invalid_request_error",
            "param": error.param,
            "code": error.code,
        }
        answer_json(request, reply, {"error": told}, error.status)
    except SmgError as error:
        answer_json(request, reply, {"error": error.message}, error.status)
    else:
        answer(request, reply, 200, JSON, body)


def _tenant(request: HttpRequest) -> str:
    return request.context.caller.tenant


def _id(request: HttpRequest) -> str:
    return request.parameters["id"]


def _body(request: HttpRequest) -> dict[str, Any]:
    """The body; one that is no object says nothing."""
    try:
        value: Any = from_json(request.body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _metadata(body: dict[str, Any]) -> dict[str, str | None]:
    """Texts by name; None deletes."""
    metadata: Any = body.get("metadata", {})
    if not isinstance(metadata, dict):
        raise InvalidRequest("metadata must be an object")
    pairs = cast("dict[str, Any]", metadata)
    for name, text in pairs.items():
        if text is not None and not isinstance(text, str):
            raise InvalidRequest(f"metadata.{name[:60]} must be a string")
    return pairs


def _set_texts(pairs: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in pairs.items() if text is not None}


def _limit(text: str) -> int:
    """How many items a page holds, from a query: none, 0, or more than a page may hold is as many as one may."""
    if not text:
        return MAX_PAGE
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidRequest(f"limit is {text[:40]!r}; it must be a whole number from 1 to 100")
    return min(int(text) or MAX_PAGE, MAX_PAGE)


def _check_include(request: HttpRequest) -> None:
    named = [
        value
        for name, value in parse_qsl(request.query, keep_blank_values=True)
        if name in ("include", "include[]")
    ]
    for index, value in enumerate(named):
        if value not in INCLUDABLE:
            raise InvalidInclude(
                f"Invalid value: {value[:80]!r}. Supported values are: {', '.join(INCLUDABLE)}.",
                param=f"include[{index}]",
            )
