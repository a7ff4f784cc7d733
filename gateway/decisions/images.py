"""Tells what an image is from its bytes: PNG, JPEG or WebP, how large, and whether it moves. Nothing declared counts.

Formats: PNG (W3C; an animated one has an acTL chunk before its data), JPEG (ITU T.81, the SOF marker holds the size), WebP
(RFC 9649; ANIM, or the flag of VP8X).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from smg.errors import DecisionsRefused

MAX_IMAGE_BYTES = 16 * 1024 * 1024
MAX_PIXELS = 16_000_000
MAX_ASPECT = 200
_PNG = b"\x89PNG\r\n\x1a\n"
# Markers of JPEG frames; C4, C8 and CC are something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset((0x01, 0xFF, *range(0xD0, 0xD9)))


class Image(NamedTuple):
    """What the bytes say.

    Attributes:
        kind: "png", "jpeg" or "webp". width: in pixels. height: in pixels.
    """

    kind: str
    width: int
    height: int


def checked_image(data: bytes, where: str) -> Image:
    """What an image is.

    Raises:
        DecisionsRefused: it is no such image, animated, or too large.
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise DecisionsRefused(
            f"{where} has {len(data)} bytes; at most {MAX_IMAGE_BYTES} are allowed",
            reason="image_too_large",
            limit=MAX_IMAGE_BYTES,
        )
    try:
        image = _image(data)
    except (struct.error, IndexError):
        image = None
    if image is None:
        raise DecisionsRefused(f"{where} is no PNG, JPEG or WebP image", reason="image_malformed")
    if image == _MOVES:
        raise DecisionsRefused(f"{where} is animated; only still images are read", reason="image_animated")
    width, height = image.width, image.height
    if not width or not height:
        raise DecisionsRefused(f"{where} has no pixels", reason="image_malformed")
    if width * height > MAX_PIXELS:
        raise DecisionsRefused(
            f"{where} has {width} x {height} pixels; at most {MAX_PIXELS} are allowed",
            reason="image_too_large",
            limit=MAX_PIXELS,
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise DecisionsRefused(
            f"{where} has {width} x {height} pixels; one side may be at most {MAX_ASPECT} times the other",
            reason="image_aspect",
            limit=MAX_ASPECT,
        )
    return image


_MOVES = Image("animated", 0, 0)


def _image(data: bytes) -> Image | None:
    if data.startswith(_PNG):
        return _png(data)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _png(data: bytes) -> Image | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack(">II", data[16:24])
    place, has_data = 8, False
    while place + 12 <= len(data):
        (length,), kind = struct.unpack(">I", data[place : place + 4]), data[place + 4 : place + 8]
        if kind == b"acTL":
            return _MOVES
        has_data = has_data or kind == b"IDAT"
        if kind == b"IEND":
            return Image("png", width, height) if has_data else None
        place += 12 + length
    return None


def _jpeg(data: bytes) -> Image | None:
    place = 2
    while place + 4 <= len(data):
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker in _BARE:
            place += 1 if marker == 0xFF else 2
            continue
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return Image("jpeg", width, height)
        (length,) = struct.unpack(">H", data[place + 2 : place + 4])
        place += 2 + length
    return None


def _webp(data: bytes) -> Image | None:
    place, size = 12, None
    while place + 8 <= len(data):
        kind, (length,) = data[place : place + 4], struct.unpack("<I", data[place + 4 : place + 8])
        body = data[place + 8 : place + 8 + length]
        if kind in (b"ANIM", b"ANMF"):
            return _MOVES
        if kind == b"VP8X":
            if body[0] & 2:
                return _MOVES
            size = 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
        elif kind == b"VP8L" and body[0] == 0x2F:
            bits = int.from_bytes(body[1:5], "little")
            return Image("webp", *(size or (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))))
        elif kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
            width, height = struct.unpack("<HH", body[6:10])
            return Image("webp", *(size or (width & 0x3FFF, height & 0x3FFF)))
        place += 8 + length + (length & 1)
    return None
