"""Writes an answer that is there as a whole and comes from no pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"


def answer(
    request: HttpRequest,
    reply: Reply,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: Iterable[Header] = (),
) -> None:
    """Head, with the request's id, and body."""
    reply.start(
        status,
        [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request.context.request_id.encode()),
            *headers,
        ],
    )
    reply.end(body)


def answer_json(
    request: HttpRequest, reply: Reply, value: object, status: int = 200, headers: Iterable[Header] = ()
) -> None:
    """The same for a value that JSON can say."""
    answer(request, reply, status, JSON, orjson.dumps(value), headers)
