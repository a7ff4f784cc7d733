"""One gRPC call on a connection: puts messages together from frames, and ends exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from smg.errors import CANCELLED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE
from smg.workers.http2 import frames
from smg.workers.http2.headers import Status, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# One byte that says whether the message is compressed, four for its length.
PREFIX_BYTES = 5

_CODE_OF_RESET = {
    frames.REFUSED_STREAM: UNAVAILABLE,
    frames.CANCEL: CANCELLED,
    frames.ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
}


class Receiver(Protocol):
    """Who made a call. Called on the event loop only; must not block.

    on_messages any number of times, then on_end once. After a cancel: nothing more.
    """

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """Everything that has come since the last time, at least one message."""
        ...

    def on_end(self, status: Status) -> None:
        """The call has ended: by the server, or because the connection is gone (UNAVAILABLE)."""
        ...


def prefixed(message: bytes) -> bytes:
    """A message as it travels in DATA frames."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


class Call:
    """The state of one call.

    Attributes:
        stream: number of its stream; 0 while it waits for one.
        messages: complete messages that the receiver has not got yet.
        status: how it ended; None while it runs.
        is_over: the receiver is told nothing more: it was told the end, or it has cancelled.
    """

    __slots__ = ("receiver", "stream", "messages", "status", "is_over", "_partial", "_max_message_bytes")

    def __init__(self, receiver: Receiver, max_message_bytes: int) -> None:
        self.receiver = receiver
        self.stream = 0
        self.messages: list[bytes] = []
        self.status: Status | None = None
        self.is_over = False
        self._partial = bytearray()
        self._max_message_bytes = max_message_bytes

    def data(self, data: bytes) -> None:
        """Take the content of a DATA frame."""
        # Nearly always a frame holds one whole message.
        if (
            not self._partial
            and len(data) >= PREFIX_BYTES
            and data[0] == 0
            and len(data) == PREFIX_BYTES + int.from_bytes(data[1:PREFIX_BYTES], "big")
        ):
            self.messages.append(data[PREFIX_BYTES:])
            return
        partial = self._partial
        partial += data
        begin = 0
        while len(partial) - begin >= PREFIX_BYTES and self.status is None:
            after = begin + PREFIX_BYTES
            length = int.from_bytes(partial[begin + 1 : after], "big")
            if partial[begin]:
                self.status = Status(
                    INTERNAL, "the server sent a compressed message, which was not agreed", {}
                )
            elif length > self._max_message_bytes:
                text = f"the server sent a message of {length} bytes, at most {self._max_message_bytes} are taken"
                self.status = Status(RESOURCE_EXHAUSTED, text, {})
            elif len(partial) - after < length:
                break
            else:
                self.messages.append(bytes(partial[after : after + length]))
                begin = after + length
        del partial[:begin]

    def headers(self, fields: Mapping[str, str], *, is_last: bool) -> None:
        """Take a header block: the answer's first, or the trailers."""
        if is_last:
            self.status = self._checked(status_of(fields))
        elif fields.get(":status", "").startswith("1"):
            return
        elif fields.get(":status") != "200":
            self.status = status_of(fields)

    def end_of_data(self) -> None:
        """The server ended the stream without trailers."""
        self.status = self._checked(status_of({}))

    def reset(self, error_code: int) -> None:
        """The server ended the stream at once."""
        code = _CODE_OF_RESET.get(error_code, INTERNAL)
        self.status = Status(code, f"the server reset the call (HTTP/2 error {error_code})", {})

    def _checked(self, status: Status) -> Status:
        if self._partial and status.code == 0:
            return Status(INTERNAL, "the call ended within a message", status.trailers)
        return status


class Answer:
    """A Receiver whose messages can be awaited, for calls that are not on the hot path."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """Keep them."""
        self._messages += messages

    def on_end(self, status: Status) -> None:
        """Wake the caller."""
        if not self._done.done():
            self._done.set_result(status)

    async def get(self) -> tuple[Sequence[bytes], Status]:
        """All messages, and how the call ended."""
        status = await self._done
        return self._messages, status
