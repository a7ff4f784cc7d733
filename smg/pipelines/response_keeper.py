"""Keeps one response: while it runs in the background, and when it has ended.

What runs is vouched for by its router, for some seconds at a time. Whoever sees that nobody does any more, or is asked
to cancel it, ends it in its place: a response ends once, and what comes later from its router is not kept.
"""

from __future__ import annotations

import asyncio
from math import ceil
from time import monotonic
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
        on_write: told how long each write took, in seconds, and whether it was kept.
    """

    def __init__(
        self,
        store: HistoryStore,
        tenant: str,
        previous_id: str,
        conversation_id: str,
        lease_s: float,
        now: Callable[[], float],
        on_write: Callable[[float, bool], None],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._previous_id = previous_id
        self._conversation_id = conversation_id
        self._lease_s = lease_s
        self._now = now
        self._on_write = on_write
        self._is_kept = False

    async def begin(self, body: Json, kept: Sequence[StoredItem]) -> None:
        """Keep a response that waits for its turn in the background."""
        stored = self._stored(body, kept, self._lease_until())
        await self._whole(self._store.put_response(self._tenant, stored))
        self._is_kept = True

    async def go_on(self, body: Json, kept: Sequence[StoredItem]) -> bool:
        """Keep how far it is. Returns whether it is to go on: False where somebody has ended it."""
        stored = self._stored(body, kept, self._lease_until())
        return await self._whole(self._store.replace_running(self._tenant, stored))

    async def end(self, body: Json, kept: Sequence[StoredItem]) -> Json:
        """Keep how it ended, with its part of the conversation. Returns that, or how somebody else has ended it."""
        stored = self._stored(body, kept, 0)
        # A response that somebody has stopped is no part of the conversation.
        is_part = self._conversation_id and body["status"] != "cancelled"
        items = [*kept, *kept_output(body["output"], stored.created_at)] if is_part else ()
        if not self._is_kept:
            await self._whole(self._store.put_response(self._tenant, stored, items))
            return body
        if await self._whole(self._store.replace_running(self._tenant, stored, items)):
            return body
        found = await self._store.response(self._tenant, stored.id)
        return {**body, "status": "cancelled"} if found is None else orjson.loads(found.body_json)

    async def _whole(self, writing: Coroutine[Any, Any, T]) -> T:
        """Let a write come to its end even if nobody waits for it any more."""
        began_at, is_kept = monotonic(), False
        task = asyncio.ensure_future(writing)
        try:
            done = await asyncio.shield(task)
            is_kept = True
        except asyncio.CancelledError:
            await asyncio.wait((task,))
            is_kept = task.exception() is None
            raise
        finally:
            self._on_write(monotonic() - began_at, is_kept)
        return done

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
