"""Server-sent events: frames, headers, and the comment that keeps a quiet stream alive.

Format: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.reply import Header, Reply

HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
_LINE_ENDS = re.compile("\u0085|\u2028|\u2029".encode())
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def frame(data: bytes) -> bytes:
    """One event without a name. The data is compact JSON, which has no line break of the format's own.

    Characters that some readers take for line breaks all the same are escaped; JSON has them inside strings only.
    """
    # Most data is ASCII, and looking for that costs a fraction of a search.
    if not data.isascii() and _LINE_ENDS.search(data):
        data = _LINE_ENDS.sub(_escaped, data)
    return b"data: %b\n\n" % data


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


class KeepAlive:
    """Writes a comment to every open stream that has been silent for a while.

    One timer serves all streams: each tick adds one to every stream's idle count, each write sets it to zero, so a
    token pays one attribute store and no clock.
    """

    def __init__(self, silence_s: float, tick_s: float = 1.0) -> None:
        """Args: silence_s: silence after which a comment is written; 0 for never."""
        self._silence_ticks = max(1, round(silence_s / tick_s)) if silence_s else 0
        self._tick_s = tick_s
        self._open: dict[Reply, Callable[[], None]] = {}

    def add(self, reply: Reply, begin: Callable[[], None]) -> None:
        """Watch a stream until it ends.

        Args:
            reply: the stream.
            begin: starts the stream if the first comment comes before its first event.
        """
        reply.idle_ticks = 0
        self._open[reply] = begin

    def discard(self, reply: Reply) -> None:
        """Watch a stream no more."""
        self._open.pop(reply, None)

    def ping(self, reply: Reply) -> None:
        """Write a comment now, if the reply is a stream that is watched."""
        if reply in self._open:
            reply.write(PING)

    async def run(self) -> None:
        """Tick until cancelled."""
        while self._silence_ticks:
            await asyncio.sleep(self._tick_s)
            self.tick()

    def tick(self) -> None:
        """Count one tick of silence for every stream and write to those that reach the bound."""
        for reply, begin in list(self._open.items()):
            reply.idle_ticks += 1
            if 0 < self._silence_ticks <= reply.idle_ticks:
                if not reply.is_started:
                    begin()
                reply.write(PING)
