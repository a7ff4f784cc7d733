"""Answers GET /openapi.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.whole import JSON, answer
from smg.pipelines.off_loop import in_thread

if TYPE_CHECKING:
    from gateway.reply import Reply
    from gateway.request import HttpRequest


# RFC 9512
YAML = b"application/yaml"


async def openapi(request: HttpRequest, reply: Reply) -> None:
    """GET /openapi.json."""
    # Made when somebody first asks for it, which takes about 50 ms: in a thread, so that no stream waits.
    answer(request, reply, 200, JSON, await in_thread(_document))


async def openapi_yaml(request: HttpRequest, reply: Reply) -> None:
    """GET /openapi.yaml: the same document."""
    answer(request, reply, 200, YAML, await in_thread(_document_yaml))


def _document_yaml() -> bytes:
    from gateway.openapi.document import document_yaml

    return document_yaml()


def _document() -> bytes:
    from gateway.openapi.document import document_bytes

    return document_bytes()
