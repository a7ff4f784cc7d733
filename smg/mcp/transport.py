"""An HTTP transport for the MCP SDK that connects only to addresses which the guard has seen, and reads only so much.

The SDK ends a whole session, with all calls in it, when one message cannot be sent or its answer cannot be read. So such
a failure is given to it as the server's answer to that one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.egress.guard import EgressGuard

# Servers close connections that were idle for five seconds, many of them: one that is older could be closed while a
# message is on its way, and nobody could tell whether it was read.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=2.0)
_INTERNAL_ERROR = -32603  # JSON-RPC


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._left -= len(chunk)
                if self._left < 0:
                    msg = "the answer of the MCP server is too long"
                    raise httpx2.StreamError(msg)
                yield chunk
        except httpx2.TransportError as error:
            raise httpx2.StreamError(_said(error)) from error

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
        self._inner = inner or httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS)

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
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            failed = {
                "jsonrpc": "2.0",
                "id": None,
                "error": {"code": _INTERNAL_ERROR, "message": _said(error)},
            }
            return httpx2.Response(502, json=failed, request=request)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream") and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream, self._max_body_bytes)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _said(error: Exception) -> str:
    return f"the MCP server does not answer: {str(error) or type(error).__name__}"
