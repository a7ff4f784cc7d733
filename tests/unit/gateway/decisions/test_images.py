"""checked_image(): the bytes decide what an image is; what moves, lies or is cut short is refused."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gateway.decisions.images import checked_image
from smg.errors import DecisionsRefused


def image(kind, size=(7, 5), **options):
    data = io.BytesIO()
    Image.new("RGB", size, "red").save(data, kind, **options)
    return data.getvalue()


PNG_BYTES = image("PNG")


def moving(kind):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = io.BytesIO()
    frames[0].save(data, kind, save_all=True, append_images=frames[1:], duration=100)
    return data.getvalue()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {}), ("WEBP", {"lossless": True})],
)
def test_kind_and_size_come_from_the_bytes(kind, options):
    assert checked_image(image(kind, **options), "x") == (kind.lower(), 7, 5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (moving("PNG"), "image_animated"),
        (moving("WEBP"), "image_animated"),
        (moving("GIF"), "image_malformed"),
        (b"", "image_malformed"),
        (b"\0\0\0", "image_malformed"),
        (image("PNG")[:40], "image_malformed"),
        (image("JPEG")[:20], "image_malformed"),
        (image("WEBP")[:20], "image_malformed"),
        (image("PNG", (401, 2)), "image_aspect"),
        (image("PNG", (4001, 4000)), "image_too_large"),
        (b"x" * (16 * 1024 * 1024 + 1), "image_too_large"),
    ],
)
def test_what_is_refused_has_its_reason(data, reason):
    with pytest.raises(DecisionsRefused) as caught:
        checked_image(data, "x")
    assert caught.value.reason == reason


@given(
    st.sampled_from([image("PNG"), image("JPEG"), image("WEBP")]), st.integers(0, 400), st.binary(max_size=9)
)
def test_any_damage_is_an_image_or_a_refusal(data, place, damage):
    with contextlib.suppress(DecisionsRefused):
        checked_image(data[:place] + damage + data[place + len(damage) :], "x")
