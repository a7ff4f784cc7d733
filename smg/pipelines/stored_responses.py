"""Stored responses: what may be done with them, over HTTP and gRPC alike."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from smg.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.background import BackgroundResponses
    from smg.pipelines.event_log import EventLog
    from smg.responses.shapes import Json
    from smg.storage.base import HistoryStore
    from smg.storage.records import StoredResponse

logger = logging.getLogger(__name__)

_LOST: Json = {
    "status": "failed",
    "error": {
        "code": "server_error",
        "message": "The router that ran this response has stopped, or lost the history store. Create it again.",
    },
}


class StoredResponses:
    """The operations on one store. Each belongs to a tenant, who sees nothing of the others."""

    def __init__(
        self,
        store: HistoryStore,
        background: BackgroundResponses,
        now: Callable[[], float] = time.time,  # noqa: TID251 - compared with times that are kept
    ) -> None:
        """Args: now tells Unix time in seconds."""
        self._store = store
        self._background = background
        self._now = now

    async def get(self, tenant: str, response_id: str) -> StoredResponse:
        """One response. One that nobody vouches for any more has failed, and is kept so.

        Raises:
            NotFound: there is none.
        """
        return await self._found(tenant, response_id, "not_found")

    async def log(self, tenant: str, response_id: str) -> EventLog:
        """The events of one that runs on this router, or did.

        Raises:
            NotFound: there is no such response.
            InvalidRequest: its events are not kept here.
        """
        try:
            return self._background.log(tenant, response_id)
        except InvalidRequest:
            await self.get(tenant, response_id)
            raise

    async def delete(self, tenant: str, response_id: str) -> None:
        """Forget one, and stop it where it runs here; those that follow it stay, and cannot be followed any more.

        Raises:
            NotFound: there is none.
        """
        if not await self._store.delete_response(tenant, response_id):
            raise _unknown(response_id, "not_found")
        # Nobody will ask for what still runs.
        await self._background.cancel(tenant, response_id)

    async def cancel(self, tenant: str, response_id: str) -> StoredResponse:
        """Stop one that runs in the background. Returns it as it is now.

        What has come of it is kept where it runs on this router; another router's is stopped when that one vouches for
        it next, and ends without what came after it began.

        Raises:
            NotFound: there is none.
            InvalidRequest: it does not run; the code says why.
        """
        was_running = await self._background.cancel(tenant, response_id)
        found = await self._found(tenant, response_id, "response_not_found")
        if found.lease_until and not was_running:
            stopped = self._ended(found, {"status": "cancelled"})
            if await self._store.replace_running(tenant, stopped):
                return stopped
            found = await self._found(tenant, response_id, "response_not_found")
        status = orjson.loads(found.body_json)["status"]
        if was_running or status == "cancelled":
            return found
        if status == "failed":
            raise InvalidRequest(
                "Cannot cancel a response that has failed.",
                code="response_already_failed",
                param="response_id",
            )
        if status in ("completed", "incomplete"):
            raise InvalidRequest(
                "Cannot cancel a response that has already completed.",
                code="response_already_completed",
                param="response_id",
            )
        raise InvalidRequest(
            "Background mode is not supported. Synchronous and streaming responses cannot be cancelled.",
            code="cancellation_not_supported",
            param="response_id",
        )

    async def _found(self, tenant: str, response_id: str, code: str) -> StoredResponse:
        """A response as it is now.

        Raises:
            NotFound: there is none; it has this code.
        """
        found = await self._store.response(tenant, response_id)
        if found is not None and self._is_lost(tenant, found):
            lost = self._ended(found, _LOST)
            if await self._store.replace_running(tenant, lost):
                logger.warning("background response %s was lost: nobody vouches for it", response_id[:80])
                return lost
            # Somebody was faster.
            found = await self._store.response(tenant, response_id)
        if found is None:
            raise _unknown(response_id, code)
        return found

    def _is_lost(self, tenant: str, found: StoredResponse) -> bool:
        return 0 < found.lease_until < self._now() and not self._background.runs(tenant, found.id)

    def _ended(self, found: StoredResponse, how: Json) -> StoredResponse:
        body = orjson.loads(found.body_json) | how | {"completed_at": int(self._now())}
        return replace(found, body_json=orjson.dumps(body).decode(), lease_until=0)


def _unknown(response_id: str, code: str) -> NotFound:
    return NotFound(f"No response with id {response_id[:80]!r} found.", code=code, param="response_id")
