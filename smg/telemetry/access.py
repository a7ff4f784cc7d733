"""Logs one line per HTTP request: an ASGI application around another one.

Wrapped around the gateway only when the setting `access_log` asks for it; without it a request pays nothing.
Neither query strings nor bodies are logged, since both may hold what clients keep private.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Message = dict[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]

logger = logging.getLogger("smg.access")

# What is logged of a request whose client left before anything was answered.
_CLIENT_LEFT = 499
_LONGEST_PATH = 200


class AccessLog:
    """The application to run in place of the wrapped one."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a scope with the wrapped application, and log it when it has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        answer: dict[str, Any] = {"status": _CLIENT_LEFT, "bytes": 0}

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer["status"] = message["status"]
                answer["request_id"] = _header(message, b"x-request-id")
            else:
                answer["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            client: tuple[str, int] | None = scope.get("client")
            logger.info(
                "%s %s",
                scope["method"],
                scope["path"][:_LONGEST_PATH],
                extra={
                    **answer,
                    "seconds": round(time.monotonic() - started, 4),
                    "client": client[0] if client else "",
                },
            )


def _header(message: Message, name: bytes) -> str:
    for key, value in message.get("headers", ()):
        if key == name:
            return bytes(value).decode("latin-1")
    return ""
