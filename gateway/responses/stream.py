"""Writes a response as server-sent events: each with its name, and no [DONE] at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from gateway.sse import HEADERS, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.reply import Header, Reply
    from smg.errors import SmgError


class SseOutlet:
    """The events of one response, on their way to the client."""

    def __init__(self, reply: Reply, headers: list[Header]) -> None:
        """Args: headers beside SSE's own."""
        self._reply = reply
        self._headers = headers
        self._frames: list[bytes] = []
        self._number = 0

    def begin(self) -> None:
        """Start the stream: with the first event, or before it when a comment has to go out."""
        if not self._reply.is_started:
            self._reply.start(200, [*HEADERS, *self._headers])

    def event(self, kind: str, number: int, data: bytes) -> None:
        """Gather an event."""
        self._frames.append(b"event: %b\n%b" % (kind.encode(), frame(data)))
        self._number = number + 1

    def flush(self) -> None:
        """Write what has gathered, in one piece."""
        if self._frames:
            data = b"".join(self._frames)
            self._frames.clear()
            self._reply.write(data)

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client's socket is full."""
        return self._reply.is_behind(go_on)

    def end(self) -> None:
        """All is said."""
        data = b"".join(self._frames)
        self._frames.clear()
        self._reply.end(data)

    def fail(self, error: SmgError) -> None:
        """End a stream that a comment has begun and that has no response."""
        told = {
            "type": "error",
            "sequence_number": self._number,
            "code": error.code,
            "message": error.message,
            "param": error.param,
        }
        self.event("error", self._number, orjson.dumps(told))
        self.end()
