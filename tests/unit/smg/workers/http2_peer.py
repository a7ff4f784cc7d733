"""The server's side of an HTTP/2 connection, as bytes, and a transport that keeps what the client writes."""

from __future__ import annotations

import hpack

from smg.workers.http2 import frames
from smg.workers.http2.connection import Connection
from smg.workers.options import WorkerOptions


class Transport:
    """An asyncio transport without a socket."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False
        self.paused = 0
        self.resumed = 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.resumed += 1

    def get_extra_info(self, name):
        return None

    def take_frames(self) -> list[tuple[int, int, int, bytes]]:
        """The frames written since the last time: kind, flags, stream, payload."""
        data, found = bytes(self.written), []
        self.written.clear()
        data = data.removeprefix(frames.PREFACE)
        while data:
            high, low, kind, flags, stream = frames.HEADER.unpack_from(data)
            end = frames.HEADER_BYTES + (high << 16 | low)
            found.append((kind, flags, stream, data[frames.HEADER_BYTES : end]))
            data = data[end:]
        return found


class Receiver:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.batches: list[int] = []
        self.statuses: list = []

    def on_messages(self, messages) -> None:
        assert not self.statuses
        self.batches.append(len(messages))
        self.messages += messages

    def on_end(self, status) -> None:
        self.statuses.append(status)

    @property
    def code(self) -> int:
        (status,) = self.statuses
        return status.code


class Peer:
    """Makes a server's bytes. Its header table has size 0, as our settings want."""

    def __init__(self) -> None:
        self._encoder = hpack.Encoder()
        self._encoder.header_table_size = 0

    def block(self, *fields: tuple[str, str]) -> bytes:
        return self._encoder.encode(fields)

    def headers(self, stream: int, *fields: tuple[str, str], end: bool = False) -> bytes:
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frames.frame(frames.HEADERS, flags, stream, self.block(*fields))

    def begin(self, stream: int) -> bytes:
        return self.headers(stream, (":status", "200"), ("content-type", "application/grpc"))

    def end(self, stream: int, code: int = 0, message: str = "") -> bytes:
        return self.headers(stream, ("grpc-status", str(code)), ("grpc-message", message), end=True)

    @staticmethod
    def message(stream: int, *contents: bytes) -> bytes:
        return frames.frame(frames.DATA, 0, stream, b"".join(prefixed(content) for content in contents))


def prefixed(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


def settings(**values: int) -> bytes:
    pairs = b"".join(
        getattr(frames, name).to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items()
    )
    return frames.frame(frames.SETTINGS, 0, 0, pairs)


def goaway(last: int, words: bytes = b"") -> bytes:
    return frames.frame(frames.GOAWAY, 0, 0, last.to_bytes(4, "big") + bytes(4) + words)


def connected(**options) -> tuple[Connection, Transport]:
    """A connection whose opening has been read."""
    connection, transport = Connection("host:1", WorkerOptions(**options)), Transport()
    connection.connection_made(transport)
    transport.take_frames()
    return connection, transport


def call(connection: Connection, body: bytes = b"request"):
    receiver = Receiver()
    return connection.call("/service/Method", body, receiver), receiver
