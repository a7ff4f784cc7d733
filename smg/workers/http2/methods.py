"""Calls of gRPC methods that a coroutine awaits: one answer, or a stream of a bounded length; statuses as errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.errors import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, EngineError
from smg.workers.failures import RETRYABLE_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from smg.workers.http2.connection import Connection
    from smg.workers.http2.headers import Status


def status_error(status: Status, what: str = "") -> EngineError:
    """What a failed call means. The server's own words are kept, after `what` when it is given."""
    message = status.message or f"status {status.code}"
    return EngineError(
        f"{what}: {message}" if what else message,
        engine_code=status.code,
        can_retry=status.code in RETRYABLE_CODES,
    )


async def ask(connection: Connection, path: str, message: bytes, timeout_s: float) -> bytes:
    """Call a unary method.

    Raises:
        EngineError: the call failed, with its status, or took too long (DEADLINE_EXCEEDED).
    """
    messages, status = await connection.ask(path, message, timeout_s)
    if status.code:
        raise status_error(status)
    if len(messages) != 1:
        raise EngineError(f"{path} was answered with {len(messages)} messages", engine_code=INTERNAL)
    return messages[0]


async def stream(
    connection: Connection, path: str, message: bytes, *, timeout_s: float, limit_bytes: int
) -> AsyncIterator[bytes]:
    """Call a method that streams, and yield its messages.

    Raises:
        EngineError: the call failed, took too long (DEADLINE_EXCEEDED), or sent more than `limit_bytes` in all
            (RESOURCE_EXHAUSTED).
    """
    pieces = _Pieces(limit_bytes)
    call = connection.call(path, message, pieces)
    try:
        async with asyncio.timeout(timeout_s):
            while (piece := await pieces.queue.get()) is not None:
                yield piece
    except TimeoutError:
        raise EngineError(
            f"{path} took longer than {timeout_s:g} s", engine_code=DEADLINE_EXCEEDED, can_retry=True
        ) from None
    finally:
        connection.cancel(call)
    if pieces.is_too_long:
        raise EngineError(f"{path} exceeds the {limit_bytes} bytes allowed", engine_code=RESOURCE_EXHAUSTED)
    if pieces.status is not None and pieces.status.code:
        raise status_error(pieces.status)


class _Pieces:
    """A Receiver that hands messages to a coroutine, up to a total length."""

    def __init__(self, limit_bytes: int) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.status: Status | None = None
        self.is_too_long = False
        self._left = limit_bytes

    def on_messages(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            if self.is_too_long:
                return
            self._left -= len(message)
            self.is_too_long = self._left < 0
            self.queue.put_nowait(None if self.is_too_long else message)

    def on_end(self, status: Status) -> None:
        self.status = status
        self.queue.put_nowait(None)
