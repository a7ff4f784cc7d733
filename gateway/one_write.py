"""Sends the head of an HTTP answer together with the first bytes of its body: one system call, not two.

uvicorn writes the head as soon as it is known, and uvloop hands every write to the kernel at once; a write costs as
much as everything else of a token. An application behind this sends its head right before its first body bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_INTERIM = b"HTTP/1.1 100 "


class HeadHolder:
    """A transport that keeps the next write back and joins it to the one after. Everything else goes through.

    Attributes:
        write: writes, keeps back, or joins, depending on the state; with nothing kept back it is the transport's own.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.write: Callable[[bytes], None] = transport.write

    def expect_head(self) -> None:
        """The next write is the head of an answer."""
        self.write = self._hold

    def flush(self) -> None:
        """Write what is kept back: the answer has no body."""
        self.write = self._transport.write
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Write what is kept back and close."""
        self.flush()
        self._transport.close()

    def _hold(self, data: bytes) -> None:
        if data.startswith(_INTERIM):
            self._transport.write(data)
            return
        self._head = data
        self.write = self._join

    def _join(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.write = self._transport.write
        self._transport.write(head + data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a transport that joins head and body."""

    transport: Any

    def connection_made(self, transport: Any) -> None:
        """Put the holder between the protocol and the connection."""
        super().connection_made(HeadHolder(transport))  # pyright: ignore[reportArgumentType] - the same methods

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        # Called once per request, when it is its turn on the connection.
        self.transport.expect_head()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """An answer without a body, as to HEAD, ends here."""
        self.transport.flush()
        super().on_response_complete()
