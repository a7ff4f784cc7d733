"""History in Redis or Valkey. Every call is one script, so it happens as a whole; keys expire together.

A tenant's keys have one hash tag, so that a cluster keeps them in one place:

    smg:{tenant}:resp:ID          hash: the response
    smg:{tenant}:conv:ID          hash: created_at, next (place of the last item)
    smg:{tenant}:conv:ID:meta     hash: metadata
    smg:{tenant}:conv:ID:order    sorted set: items by place
    smg:{tenant}:conv:ID:items    hash: item to "created_at body"
    smg:{tenant}:item:ID          set: conversations that have the item
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from smg.errors import InvalidRequest, StorageFailed
from smg.storage.chains import join_chain
from smg.storage.records import Conversation, ItemPage, StoredItem, StoredResponse
from smg.storage.redis_scripts import SCRIPTS
from smg.storage.taken import refuse_repeated, taken, unknown_item

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Script = Callable[..., Awaitable[Any]]

_DAY_S = 86400


class RedisStore:
    """The store."""

    def __init__(self, url: str, *, timeout_s: float, pool_size: int = 16, retention_days: int = 0) -> None:
        """Connect to nothing yet.

        Args:
            url: `redis://…`, `rediss://…` or `unix://…`.
            timeout_s: longest time of a call.
            pool_size: most connections.
            retention_days: time after the last write that something is kept; 0 for ever.
        """
        redis: Any = Redis
        self._redis: Any = redis.from_url(
            url,
            decode_responses=True,
            max_connections=pool_size,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A connection that the server has closed meanwhile is replaced once, not told to a caller.
            retry=Retry(NoBackoff(), 1),
        )
        self._ttl_s = retention_days * _DAY_S
        self._scripts: dict[str, Script] = {
            name: self._redis.register_script(text) for name, text in SCRIPTS.items()
        }

    async def open(self) -> None:
        """See HistoryStore."""
        await self._do(self._redis.ping())

    async def close(self) -> None:
        """See HistoryStore."""
        await self._redis.aclose()

    async def put_response(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> None:
        """See HistoryStore."""
        await self._run("put_response", tenant, response.id, *_fields(response), *_flat(items))

    async def replace_running(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> bool:
        """See HistoryStore."""
        words = (*_fields(response), *_flat(items))
        return bool(await self._run("replace_running", tenant, response.id, *words))

    async def renew(self, running: Sequence[tuple[str, str]], lease_until: int) -> set[tuple[str, str]]:
        """See HistoryStore."""
        by_tenant: dict[str, list[str]] = {}
        for tenant, response_id in running:
            by_tenant.setdefault(tenant, []).append(response_id)
        still: set[tuple[str, str]] = set()
        for tenant, ids in by_tenant.items():
            still.update((tenant, each) for each in await self._run("renew", tenant, "", lease_until, *ids))
        return still

    async def response(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See HistoryStore."""
        row = await self._run("response", tenant, response_id)
        return _response(response_id, row) if row else None

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """See HistoryStore."""
        return bool(await self._run("delete_response", tenant, response_id))

    async def chain(self, tenant: str, response_id: str, longest: int) -> list[StoredResponse]:
        """See HistoryStore."""
        rows = await self._run("chain", tenant, response_id, longest)
        found = [_response(row[0], row[1:]) for row in rows]
        return join_chain(response_id, {each.id: each for each in found}, longest)

    async def put_conversation(self, tenant: str, conversation: Conversation) -> None:
        """See HistoryStore."""
        pairs = [word for pair in conversation.metadata.items() for word in pair]
        await self._run("put_conversation", tenant, conversation.id, conversation.created_at, *pairs)

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """See HistoryStore."""
        return _conversation(conversation_id, await self._run("conversation", tenant, conversation_id))

    async def merge_metadata(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None], most: int
    ) -> Conversation | None:
        """See HistoryStore."""
        words: list[str] = []
        for name, text in changes.items():
            words += [name, "" if text is None else f"={text}"]
        row = await self._run("merge_metadata", tenant, conversation_id, most, *words)
        if row and row[0] == "many":
            raise InvalidRequest(
                f"metadata would have {row[1]} properties; at most {most} are allowed", param="metadata"
            )
        return _conversation(conversation_id, row)

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """See HistoryStore."""
        return bool(await self._run("delete_conversation", tenant, conversation_id))

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[StoredItem | str]
    ) -> list[StoredItem] | None:
        """See HistoryStore."""
        refuse_repeated(items)
        row = await self._run("add_items", tenant, conversation_id, *_flat(items))
        if row[0] == "gone":
            return None
        if row[0] == "taken":
            raise taken(row[1])
        if row[0] == "unknown":
            raise unknown_item(row[1])
        ids = [item if isinstance(item, str) else item.id for item in items]
        return [_item(item_id, text) for item_id, text in zip(ids, row[1:], strict=True)]

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage | None:
        """See HistoryStore."""
        row = await self._run("items", tenant, conversation_id, limit + 1, int(newest_first), after)
        if row[0] == "gone":
            return None
        if row[0] == "unknown":
            raise unknown_item(after)
        words = row[1:]
        found = [_item(item_id, text) for item_id, text in zip(words[::2], words[1::2], strict=True)]
        return ItemPage(found[:limit], len(found) > limit)

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem | None:
        """See HistoryStore."""
        text = await self._run("item", tenant, conversation_id, item_id)
        return _item(item_id, text) if text else None

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """See HistoryStore."""
        return bool(await self._run("remove_item", tenant, conversation_id, item_id))

    async def purge(self, before: int) -> int:
        """0: keys expire by themselves, `retention_days` after they were written last."""
        del before
        return 0

    async def _run(self, script: str, tenant: str, key_id: str, *words: object) -> Any:
        prefix = f"smg:{{{quote(tenant, safe='') or '-'}}}:"
        return await self._do(self._scripts[script](keys=[prefix], args=[self._ttl_s, key_id, *words]))

    async def _do(self, call: Awaitable[Any]) -> Any:
        """Wait for an answer.

        Raises:
            StorageFailed: there is none, or it is an error.
        """
        try:
            return await call
        except (RedisError, OSError, TimeoutError) as error:
            raise StorageFailed(f"the history store failed ({type(error).__name__}); try again") from error


def _flat(items: Sequence[StoredItem | str]) -> list[str]:
    """Id and text of each; an id alone has no text."""
    words: list[str] = []
    for item in items:
        words += [item, ""] if isinstance(item, str) else [item.id, f"{item.created_at} {item.body_json}"]
    return words


def _item(item_id: str, text: str) -> StoredItem:
    created_at, _, body_json = text.partition(" ")
    return StoredItem(item_id, int(created_at), body_json)


def _fields(response: StoredResponse) -> tuple[str | int, ...]:
    """What is kept of a response, in the order of FIELDS in the scripts."""
    return (
        response.created_at,
        response.body_json,
        response.input_json,
        response.previous_id,
        response.conversation_id,
        response.lease_until,
    )


def _response(response_id: str, row: Sequence[str]) -> StoredResponse:
    return StoredResponse(response_id, int(row[0]), *row[1:5], lease_until=int(row[5]))


def _conversation(conversation_id: str, row: object) -> Conversation | None:
    if not row:
        return None
    created_at, *pairs = cast("list[str]", row)
    metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return Conversation(conversation_id, int(created_at), MappingProxyType(metadata))
