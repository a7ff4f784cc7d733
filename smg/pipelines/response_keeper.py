"""Keeps one response: while it runs in the background, and when it has ended.

What runs is vouched for by its router, for some seconds at a time. Whoever sees that nobody does any more, or is asked
to cancel it, ends it in its place: a response ends once, and what comes later from its router is not kept.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, TypeVar

import orjson

from smg.responses.kept import json_array, kept_output
from smg.storage.records import StoredResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from smg.responses.shapes import Json
    from smg.storage.base import HistoryStore
    from smg.storage.records import StoredItem

T = TypeVar("T")


class ResponseKeeper:
    """Keeps one response.

    Args:
        store: where.
        tenant: whose.
        previous_id: the response that it follows; empty for none.
        conversation_id: the conversation that it is part of; empty for none.
        lease_s: time for which its router vouches for it.
        now: Unix time in seconds.
    """

    def __init__(
        self,
        store: HistoryStore,
        tenant: str,
        previous_id: str,
        conversation_id: str,
        lease_s: float,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._previous_id = previous_id
        self._conversation_id = conversation_id
        self._lease_s = lease_s
        self._now = now
        self._is_kept = False

    async def begin(self, body: Json, kept: Sequence[StoredItem]) -> None:
        """Keep a response that waits for its turn in the background."""
        await _whole(self._store.put_response(self._tenant, self._stored(body, kept, self._lease_until())))
        self._is_kept = True

    async def go_on(self, body: Json, kept: Sequence[StoredItem]) -> bool:
        """Keep how far it is. Returns whether it is to go on: False where somebody has ended it."""
        stored = self._stored(body, kept, self._lease_until())
        return await _whole(self._store.replace_running(self._tenant, stored))

    async def end(self, body: Json, kept: Sequence[StoredItem]) -> Json:
        """Keep how it ended, with its part of the conversation. Returns that, or how somebody else has ended it."""
        stored = self._stored(body, kept, 0)
        # A response that somebody has stopped is no part of the conversation.
        is_part = self._conversation_id and body["status"] != "cancelled"
        items = [*kept, *kept_output(body["output"], stored.created_at)] if is_part else ()
        if not self._is_kept:
            await _whole(self._store.put_response(self._tenant, stored, items))
            return body
        if await _whole(self._store.replace_running(self._tenant, stored, items)):
            return body
        found = await self._store.response(self._tenant, stored.id)
        return {**body, "status": "cancelled"} if found is None else orjson.loads(found.body_json)

    def _lease_until(self) -> int:
        return lease_end(self._now(), self._lease_s)

    def _stored(self, body: Json, kept: Sequence[StoredItem], lease_until: int) -> StoredResponse:
        return StoredResponse(
            body["id"],
            body["created_at"],
            orjson.dumps(body).decode(),
            json_array(kept),
            self._previous_id,
            self._conversation_id,
            lease_until,
        )


def lease_end(now: float, lease_s: float) -> int:
    """Unix time until which a router vouches for what runs, in whole seconds."""
    return ceil(now + lease_s)


async def _whole(writing: Coroutine[Any, Any, T]) -> T:
    """Let a write come to its end even if nobody waits for it any more."""
    task = asyncio.ensure_future(writing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
