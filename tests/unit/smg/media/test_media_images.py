"""decode: bytes of strangers become a picture or a BadImage, whatever they are, and no pixel is made before the size is known."""

import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from smg.media.images import FORMATS, BadImage, decode
from tests.vision_dirs import picture

MANY = 10_000
WHOLE = {kind: picture(200, 100, 50, size=(20, 10), kind=kind) for kind in FORMATS}


@pytest.mark.parametrize("kind", FORMATS)
def test_known_formats_are_read(kind):
    image = decode(WHOLE[kind], MANY)
    assert (image.size, image.mode) == ((20, 10), "RGB")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_that_claims(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(100_000, 100_000), (101, 100), (2**31 - 1, 1)])
def test_a_size_beyond_the_bound_is_refused_before_a_pixel_is_made(size):
    with pytest.raises(BadImage, match="pixels"):
        decode(png_that_claims(*size), MANY)


def test_a_picture_without_pixels_is_refused():
    with pytest.raises(BadImage):
        decode(png_that_claims(0, 10), MANY)


def test_formats_that_are_not_on_the_list_are_refused():
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "TIFF")
    with pytest.raises(BadImage, match="allowed: PNG"):
        decode(buffer.getvalue(), MANY)


def test_a_picture_is_turned_as_its_camera_says():
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(buffer, "JPEG", exif=exif)
    assert decode(buffer.getvalue(), MANY).size == (10, 20)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16"])
def test_every_kind_of_pixel_becomes_rgb(mode):
    buffer = io.BytesIO()
    Image.new(mode, (4, 4)).save(buffer, "JPEG" if mode == "CMYK" else "PNG")
    assert decode(buffer.getvalue(), MANY).mode == "RGB"


@given(st.sampled_from(FORMATS), st.data())
def test_damaged_bytes_are_a_picture_or_refused(kind, data):
    whole = bytearray(WHOLE[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(whole)))
    try:
        image = decode(bytes(whole[:end]), MANY)
    except BadImage:
        return
    assert image.width * image.height <= MANY
