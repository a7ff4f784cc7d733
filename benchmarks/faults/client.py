"""A plain HTTP client on one socket per request, which keeps every byte and can behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from benchmarks.gateway.load import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

CHAT = "/v1/chat/completions"
# What names one answer and no other: its id, those of its calls, and the second of its birth.
_NAMES = re.compile(rb'"id":"(?:chatcmpl|cmpl|call)[^"]*",|"created":\d+,')


def request_bytes(body: Mapping[str, Any], path: str = CHAT) -> bytes:
    """A whole request, after which the connection is to be closed."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(raw) + raw


@dataclass(slots=True)
class Reply:
    """An answer as it arrived.

    Attributes:
        status: 0 when there was none.
        events: data of its server-sent events, without what names the answer; or the one body.
        longest_gap_s: between two reads.
        total_s: from the request's last byte to the end.
    """

    status: int = 0
    events: list[bytes] = field(default_factory=list[bytes])
    longest_gap_s: float = 0.0
    total_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        """A stream that has ended as it should."""
        return self.status == 200 and self.events[-1:] == [b"[DONE]"]

    @property
    def texts(self) -> str:
        """What all choices say, one after the other as it came."""
        return "".join(
            choice["delta"].get("content") or ""
            for event in self.events[:-1]
            for choice in json.loads(event).get("choices", ())
        )

    @property
    def usage(self) -> dict[str, Any]:
        """Of a stream that was asked for it."""
        return json.loads(self.events[-2])["usage"]


async def ask(port: int, body: Mapping[str, Any], path: str = CHAT) -> Reply:
    """Send a request and read its answer to the end. What goes wrong with the connection leaves it incomplete."""
    with contextlib.suppress(ConnectionError):
        async with connected(port) as (reader, writer):
            writer.write(request_bytes(body, path))
            return await read_reply(reader)
    return Reply()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read the answer to a request that has just been sent, likewise."""
    reply, raw = Reply(), bytearray()
    with contextlib.suppress(ConnectionError):
        started = last = time.perf_counter()
        while data := await reader.read(65536):
            now = time.perf_counter()
            reply.longest_gap_s = max(reply.longest_gap_s, now - last)
            last = now
            raw += data
        reply.total_s = last - started
    head, _, rest = bytes(raw).partition(b"\r\n\r\n")
    if head:
        reply.status = int(head.split(b" ", 2)[1])
        reply.events = _events(head, rest)
    return reply


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, closed at the end."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _events(head: bytes, rest: bytes) -> list[bytes]:
    body = _unchunked(rest) if b"transfer-encoding: chunked" in head.lower() else rest
    if b"text/event-stream" not in head:
        return [_NAMES.sub(b"", body)]
    parts = (part for part in body.split(b"\n\n") if part and not part.startswith(b":"))
    return [_NAMES.sub(b"", part.removeprefix(b"data: ")) for part in parts]


def _unchunked(data: bytes) -> bytes:
    parts: list[bytes] = []
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size or b"0", 16)
        if not length:
            break
        parts.append(data[:length])
        data = data[length + 2 :]
    return b"".join(parts)


class Quantiles:
    """Times of requests."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, value: float) -> None:
        """One more."""
        self.values.append(value)

    def __getitem__(self, share: float) -> float:
        """Quantile: 0.5 is the median."""
        ordered = sorted(self.values)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0

    def merged(self, other: Self) -> Self:
        """Both."""
        both = type(self)()
        both.values = self.values + other.values
        return both
