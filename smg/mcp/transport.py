"""An HTTP transport for the MCP SDK that connects only to addresses which the guard has seen, and reads only so much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.egress.guard import EgressGuard


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                msg = "the answer of the MCP server is too long"
                raise httpx2.ReadError(msg)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to checked addresses. Redirects come through here as well: each is a request of its own.

    Args:
        guard: None where the operator has named the server.
        max_body_bytes: of an answer that is no event stream.
        inner: what sends.
    """

    def __init__(
        self, guard: EgressGuard | None, max_body_bytes: int, inner: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._guard = guard
        self._max_body_bytes = max_body_bytes
        # No proxy of the environment: it would look the name up again.
        self._inner = inner or httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request.

        Raises:
            InvalidRequest: it would go where no client may send the gateway.
        """
        if self._guard is not None:
            addresses = await self._guard.resolve(str(request.url))
            host = request.url.host
            if addresses[0] != host:
                # The certificate is still checked against the name.
                request.extensions = {**request.extensions, "sni_hostname": host}
                request.url = request.url.copy_with(host=addresses[0])
        response = await self._inner.handle_async_request(request)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream") and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream, self._max_body_bytes)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()
