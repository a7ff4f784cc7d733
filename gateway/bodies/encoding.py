"""Undoes the one layer of compression that a request body may have: gzip, or zstd with a window of at most 8 MiB.

The bound holds for the body as it was sent and again for what comes out of it, and is kept while it comes out: a small
body that would become huge is given up at the bound. For any route; the caller says what its bound is.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import zstandard

from smg.errors import DecisionsRefused, DecisionsTooLarge, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ZSTD_WINDOW = 1 << 23
# A file may be several, one after the other; each costs a new state, however empty it is.
MAX_FRAMES = 4096
# Undoing the compression of so many bytes takes about a millisecond.
INLINE_BYTES = 64 * 1024
_PIECE = 1 << 18
# What so much becomes at once cannot be bounded: a block of four bytes may be 128 KiB.
_ZSTD_PIECE = 1024
_GZIP = zlib.MAX_WBITS | 16


def is_encoded(coding: str) -> bool:
    """Whether a Content-Encoding says anything."""
    return coding.strip().lower() not in ("", "identity")


def decoded(body: bytes, coding: str, max_bytes: int) -> bytes:
    """The body without its compression.

    Args:
        body: as sent.
        coding: value of Content-Encoding; empty for none.
        max_bytes: longest body, both as sent and decoded.

    Raises:
        UnsupportedMediaType: another coding, or more than one.
        DecisionsTooLarge: longer than allowed, before or after.
        DecisionsRefused: the body is not of its coding.
    """
    if len(body) > max_bytes:
        raise too_large(f"the body has {len(body)} bytes", max_bytes)
    name = coding.strip().lower()
    if not is_encoded(coding):
        return body
    pieces = _DECODERS.get(name)
    if pieces is None:
        raise UnsupportedMediaType(
            f"Content-Encoding is {coding[:60]!r}; allowed is one layer of gzip, x-gzip or zstd",
            param="Content-Encoding",
        )
    result = bytearray()
    try:
        for piece in pieces(body):
            result += piece
            if len(result) > max_bytes:
                raise too_large("the decoded body has more bytes", max_bytes)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise DecisionsRefused(
            f"the body is not {name}: {error}", param="Content-Encoding", reason="encoding_malformed"
        ) from error
    return bytes(result)


def too_large(said: str, max_bytes: int) -> DecisionsTooLarge:
    """The refusal of a body that is too long."""
    return DecisionsTooLarge(f"{said}; at most {max_bytes} are allowed", limit=max_bytes)


def _gunzipped(body: bytes) -> Iterator[bytes]:
    rest, frames = body, 0
    while rest:
        frames += 1
        _check_frames(frames)
        stream = zlib.decompressobj(_GZIP)
        while not stream.eof:
            piece = stream.decompress(rest, _PIECE)
            rest = stream.unconsumed_tail
            if not piece and not rest and not stream.eof:
                raise EOFError("it ends in the middle")
            yield piece
        # A gzip file may be several, one after the other.
        rest = stream.unused_data
    if not body:
        raise EOFError("it is empty")


def _check_frames(frames: int) -> None:
    if frames > MAX_FRAMES:
        raise EOFError(f"it is more than {MAX_FRAMES} files, one after the other")


def _unzstd(body: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    frame, is_open, frames = decompressor.decompressobj(), False, 0
    view = memoryview(body)
    for start in range(0, len(body), _ZSTD_PIECE):
        rest = bytes(view[start : start + _ZSTD_PIECE])
        while rest:
            yield frame.decompress(rest)
            is_open, rest = not frame.eof, frame.unused_data
            if frame.eof:
                frames += 1
                _check_frames(frames)
                frame = decompressor.decompressobj()
    if is_open or not body:
        raise EOFError("it ends in the middle" if body else "it is empty")


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "zstd": _unzstd,
}
