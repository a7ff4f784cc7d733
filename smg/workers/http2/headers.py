"""Header blocks: made for requests, read from answers. Source: RFC 7541, and gRPC's PROTOCOL-HTTP2.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import hpack

from smg.errors import INTERNAL, PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE, UNIMPLEMENTED, UNKNOWN
from smg.workers.http2 import frames
from smg.workers.http2.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_HEADER_BYTES = 64 * 1024

# :method POST, and :scheme http or https, are entries 3, 6 and 7 of the static table.
_POST_HTTP = b"\x83\x86"
_POST_HTTPS = b"\x83\x87"
_MAX_CACHED = 256

# gRPC's table "http-grpc-status-mapping"; everything else is UNKNOWN.
_CODE_OF_STATUS = {
    "400": INTERNAL,
    "401": UNAUTHENTICATED,
    "403": PERMISSION_DENIED,
    "404": UNIMPLEMENTED,
    "429": UNAVAILABLE,
    "502": UNAVAILABLE,
    "503": UNAVAILABLE,
    "504": UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended.

    Attributes:
        code: a google.rpc.Code; 0 is success.
        message: the server's own words.
        trailers: everything that came with it.
    """

    code: int
    message: str
    trailers: Mapping[str, str]


def request_block(
    authority: str, path: str, metadata: Iterable[tuple[str, str]] = (), *, is_tls: bool = False
) -> bytes:
    """The header block of a gRPC request, every literal spelled out: it depends on no table."""
    fields = [
        (":authority", authority),
        (":path", path),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return (_POST_HTTPS if is_tls else _POST_HTTP) + b"".join(
        _literal(name, value) for name, value in (*fields, *metadata)
    )


class HeaderReader:
    """Reads the header blocks of one connection.

    Servers end all good calls with the same block, so what a block means is remembered: as long as the peer keeps
    its table at size 0, as our settings want, a block means the same whenever it comes.
    """

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._known: dict[bytes, Mapping[str, str]] = {}

    def read(self, block: bytes) -> Mapping[str, str]:
        """The fields of a block; of a repeated field the last.

        Raises:
            ProtocolError: the block is malformed.
        """
        decoder = self._decoder
        if decoder.header_table_size == 0 and block in self._known:
            return self._known[block]
        try:
            fields = {str(name): str(value) for name, value in decoder.decode(block)}
        except (hpack.HPACKError, UnicodeDecodeError) as fault:
            raise ProtocolError(f"malformed header block: {fault}") from fault
        if decoder.header_table_size == 0 and len(self._known) < _MAX_CACHED:
            self._known[block] = fields
        return fields


@dataclass(frozen=True, slots=True)
class Block:
    """A complete header block.

    Attributes:
        stream: its stream.
        is_last: nothing follows it on the stream.
        fields: what it says.
    """

    stream: int
    is_last: bool
    fields: Mapping[str, str]


class BlockAssembler:
    """Puts header blocks together from HEADERS and CONTINUATION frames.

    Attributes:
        is_open: a block has begun; no frame but its next part may come.
    """

    def __init__(self) -> None:
        self._reader = HeaderReader()
        self._stream = 0
        self._is_last = False
        self._parts = b""
        self.is_open = False

    def begin(self, stream: int, flags: int, payload: bytes) -> Block | None:
        """Take a HEADERS frame. Returns the block if that is all of it."""
        self._stream, self._is_last = stream, bool(flags & frames.END_STREAM)
        self._parts = frames.content_of(flags, payload, may_have_priority=True)
        return self._end(flags)

    def go_on(self, kind: int, stream: int, flags: int, payload: bytes) -> Block | None:
        """Take the frame that follows in an open block.

        Raises:
            ProtocolError: it is not the block's next part, or the block grows too long.
        """
        if kind != frames.CONTINUATION or stream != self._stream:
            raise ProtocolError("a header block was interrupted")
        self._parts += payload
        if len(self._parts) > MAX_HEADER_BYTES:
            raise ProtocolError(f"header block of more than {MAX_HEADER_BYTES} bytes")
        return self._end(flags)

    def _end(self, flags: int) -> Block | None:
        self.is_open = not flags & frames.END_HEADERS
        if self.is_open:
            return None
        # Read also for streams that nobody waits for: the peer's table may depend on it.
        return Block(self._stream, self._is_last, self._reader.read(self._parts))


def status_of(fields: Mapping[str, str]) -> Status:
    """The status that the last header block of a call tells."""
    code = fields.get("grpc-status")
    if code is None:
        http_status = fields.get(":status")
        if http_status is None or http_status == "200":
            return Status(UNKNOWN, "the server ended the call without a status", fields)
        return Status(
            _CODE_OF_STATUS.get(http_status, UNKNOWN), f"the server answered HTTP {http_status}", fields
        )
    message = unquote(fields.get("grpc-message", ""), errors="replace")
    return Status(int(code) if code.isdecimal() and len(code) < 4 else UNKNOWN, message, fields)


def _literal(name: str, value: str) -> bytes:
    """A field without indexing and without Huffman coding."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: str) -> bytes:
    data = text.encode("ascii")
    return _prefixed_length(len(data)) + data


def _prefixed_length(length: int) -> bytes:
    """An integer with a 7-bit prefix (RFC 7541, 5.1)."""
    if length < 0x7F:
        return bytes((length,))
    rest, digits = length - 0x7F, bytearray((0x7F,))
    while rest > 0x7F:
        digits.append(rest & 0x7F | 0x80)
        rest >>= 7
    digits.append(rest)
    return bytes(digits)
