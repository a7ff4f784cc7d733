"""Answers GET /openapi.json."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.reply import Reply
    from gateway.request import HttpRequest


async def openapi(request: HttpRequest, reply: Reply) -> None:
    """GET /openapi.json."""
    # Made when somebody first asks for it, which takes about 50 ms: in a thread, so that no stream waits.
    body = await asyncio.get_running_loop().run_in_executor(None, _document)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request.context.request_id.encode()),
    ]
    reply.start(200, headers)
    reply.end(body)


def _document() -> bytes:
    from gateway.openapi.document import document_bytes

    return document_bytes()
