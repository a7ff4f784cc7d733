"""HTTP/2 frames as bytes, and the numbers that they use. Source: RFC 9113."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER = struct.Struct(">BHBBI")
HEADER_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 6

NO_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0x0, 0x7, 0x8, 0xB

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
HIGHEST_WINDOW = 2**31 - 1
STREAM_MASK = 2**31 - 1


class ProtocolError(Exception):
    """The peer broke HTTP/2; the text says how. The connection is of no further use."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return HEADER.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def opening(max_header_bytes: int) -> bytes:
    """What a client sends first: the preface, its settings, and a window that never closes.

    The router always reads, so flow control towards it has nothing to do. A header table of size 0 makes every
    header block mean the same whenever it comes.
    """
    settings = (
        (HEADER_TABLE_SIZE, 0),
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, HIGHEST_WINDOW),
        (MAX_HEADER_LIST_SIZE, max_header_bytes),
    )
    payload = b"".join(struct.pack(">HI", *setting) for setting in settings)
    return PREFACE + frame(SETTINGS, 0, 0, payload) + window_update(HIGHEST_WINDOW - DEFAULT_WINDOW)


def window_update(increment: int) -> bytes:
    """Lets the peer send so many more bytes on the connection."""
    return frame(WINDOW_UPDATE, 0, 0, increment.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    """Ends a stream at once."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def settings_of(payload: bytes) -> dict[int, int]:
    """The settings in a SETTINGS frame.

    Raises:
        ProtocolError: its length is no multiple of six.
    """
    if len(payload) % 6:
        raise ProtocolError(f"SETTINGS frame of {len(payload)} bytes")
    return dict(struct.iter_unpack(">HI", payload))


def content_of(flags: int, payload: bytes, *, may_have_priority: bool = False) -> bytes:
    """The payload without padding and priority.

    Raises:
        ProtocolError: more padding than payload.
    """
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ProtocolError("padded frame without a length of its padding")
        begin, end = 1, end - payload[0]
    if may_have_priority and flags & HAS_PRIORITY:
        begin += 5
    if begin > end:
        raise ProtocolError("padding is longer than the frame")
    return payload[begin:end]
