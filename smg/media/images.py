"""Turns bytes that a client sent into a picture with Pillow, distrusting all of them. Runs in the media process.

The format is what the bytes say, of a few that are read. The size is looked at before any pixel is: that is all that a
bomb needs. Turned and converted as the `transformers` package does with images that it loads itself.
"""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


class BadImage(Exception):
    """The bytes cannot be used; the text says why, and what is allowed."""


def decode(data: bytes, max_pixels: int) -> Image.Image:
    """The picture, RGB.

    Raises:
        BadImage: no image of a known format, damaged, moving, empty or too large.
    """
    # Formats that hold others (ICO, and PNG in its metadata) look at this by themselves.
    Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check(image, max_pixels)
                image.load()
                return ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        raise BadImage(f"is no image that can be read; allowed: {', '.join(FORMATS)}") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage(f"has more than {max_pixels} pixels; no more are allowed") from None
    except (OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, OverflowError) as error:
        # What Pillow raises for damaged files.
        raise BadImage(f"is a damaged image: {error}"[:200]) from error


def _check(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if not width * height:
        raise BadImage(f"is {width} x {height} pixels large; it needs at least one")
    if width * height > max_pixels:
        raise BadImage(
            f"is {width} x {height} pixels large; no more than {max_pixels} pixels are allowed in all"
        )
    if getattr(image, "n_frames", 1) > 1:
        raise BadImage("moves; only still images are read")
