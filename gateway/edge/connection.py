"""One gRPC call as a connection that carries one HTTP request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.arriving import ArrivingRequest
from gateway.edge.reply import EdgeReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

METHOD, PATH, STATUS = "x-envoy-original-method", "x-envoy-original-path", "x-http-status"

_NOT_REQUEST_HEADERS = frozenset(
    # What Envoy says of itself, and what speaks of the connection, not of the request.
    (METHOD, PATH, "content-type", "content-length", "transfer-encoding", "connection", "te", STATUS)
)
# gRPC frames the body; Envoy refuses an answer whose headers say otherwise.
_NOT_ANSWER_HEADERS = frozenset(
    (b"content-type", b"content-length", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


class EdgeConnection:
    """What an exchange sees of the call.

    Attributes:
        reply: the answer, from when the exchange has begun.
        is_cut: the answer was given up.
    """

    def __init__(self, *, takes_body: bool, client: str = "") -> None:
        """Set up.

        Args:
            takes_body: the request is not HEAD.
            client: address that the call came from.
        """
        self._client = client
        self.reply: EdgeReply
        self.is_cut = False
        self._takes_body = takes_body
        self._task = asyncio.current_task()

    def new_reply(self, max_held_bytes: int, on_drop: Callable[[], None]) -> EdgeReply:
        """The answer's end on the exchange's side."""
        self.reply = EdgeReply(max_held_bytes, on_drop, takes_body=self._takes_body)
        return self.reply

    def client(self) -> str:
        """The address that the call came from: a proxy's, mostly."""
        return self._client

    def close(self) -> None:
        """The answer stays unfinished."""
        self.is_cut = True
        self.reply.close()

    def abort(self) -> None:
        """The same, without waiting for a client that does not read."""
        self.close()
        if self._task is not None:
            self._task.cancel()


def arriving_request(
    metadata: Iterable[tuple[str, str | bytes]] | None, content_type: str, length: int | None
) -> ArrivingRequest:
    """The request's head.

    Args:
        metadata: of the call, names in lower case.
        content_type: of the body; empty when the client named none.
        length: of the body in bytes; None where it is not known yet.
    """
    headers: dict[bytes, bytes] = {}
    method, path = "", ""
    for name, value in metadata or ():
        if isinstance(value, bytes):
            continue  # "-bin" keys, which HTTP does not know
        if name == METHOD:
            method = method or value.upper()
        elif name == PATH:
            path = path or value
        if name not in _NOT_REQUEST_HEADERS:
            headers.setdefault(name.encode("ascii", "replace"), value.encode("latin-1", "replace"))
    if content_type:
        headers[b"content-type"] = content_type.encode("latin-1", "replace")
    if length is not None:
        headers[b"content-length"] = b"%d" % length
    return ArrivingRequest(
        method or "POST", path.encode("latin-1", "replace"), headers, is_http_1_0=False, keeps_alive=True
    )


def answer_metadata(reply: EdgeReply) -> tuple[tuple[tuple[str, str], ...], str]:
    """The answer's head as initial metadata, and its content type."""
    content_type = ""
    metadata = [(STATUS, str(reply.status))]
    for name, value in reply.headers:
        if name == b"content-type":
            content_type = value.decode("latin-1")
        elif name not in _NOT_ANSWER_HEADERS:
            # Metadata is ASCII.
            metadata.append((name.decode("ascii"), value.decode("ascii", "replace").replace("\ufffd", "?")))
    return tuple(metadata), content_type
