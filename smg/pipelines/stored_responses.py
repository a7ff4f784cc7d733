"""Stored responses: what may be done with them, over HTTP and gRPC alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from smg.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from smg.pipelines.background import BackgroundResponses
    from smg.storage.base import HistoryStore
    from smg.storage.records import StoredResponse


class StoredResponses:
    """The operations on one store. Each belongs to a tenant, who sees nothing of the others."""

    def __init__(self, store: HistoryStore, background: BackgroundResponses) -> None:
        self._store = store
        self._background = background

    async def get(self, tenant: str, response_id: str) -> StoredResponse:
        """One response.

        Raises:
            NotFound: there is none.
        """
        found = await self._store.response(tenant, response_id)
        if found is None:
            raise _unknown(response_id, "not_found")
        return found

    async def delete(self, tenant: str, response_id: str) -> None:
        """Forget one; those that follow it stay, and cannot be followed any more.

        Raises:
            NotFound: there is none.
        """
        if not await self._store.delete_response(tenant, response_id):
            raise _unknown(response_id, "not_found")

    async def cancel(self, tenant: str, response_id: str) -> StoredResponse:
        """Stop one that runs in the background on this router. Returns it as it is now.

        Raises:
            NotFound: there is none.
            InvalidRequest: it does not run here; the code says why.
        """
        was_running = await self._background.cancel(tenant, response_id)
        found = await self._store.response(tenant, response_id)
        if found is None:
            raise _unknown(response_id, "response_not_found")
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
        if self._background.is_on:
            raise InvalidRequest(
                "The response runs on another router, which alone can cancel it.",
                code="cancellation_not_supported",
                param="response_id",
            )
        raise InvalidRequest(
            "Background mode is not supported. Synchronous and streaming responses cannot be cancelled.",
            code="cancellation_not_supported",
            param="response_id",
        )


def _unknown(response_id: str, code: str) -> NotFound:
    return NotFound(f"No response with id {response_id[:80]!r} found.", code=code, param="response_id")
