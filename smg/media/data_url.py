"""Reads data URLs (RFC 2397). What they declare of their content is not believed: its bytes tell what it is."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

from smg.errors import InvalidRequest

SCHEME = "data:"
# Base64 takes four characters for three bytes; the rest is for the declared type.
_AROUND_CHARS = 1024


def is_data_url(url: str) -> bool:
    """Whether a URL holds its content itself."""
    return url[: len(SCHEME)].lower() == SCHEME


def data_url_bytes(url: str, name: str, max_bytes: int) -> bytes:
    """The content of a data URL.

    Args:
        url: begins with "data:".
        name: where it stands, for messages.
        max_bytes: of the content.

    Raises:
        InvalidRequest: it is malformed, empty, or too long.
    """
    comma = url.find(",", 0, _AROUND_CHARS)
    if comma < 0:
        raise InvalidRequest(f"{name}: the data URL {url[:40]!r} has no comma before its content", param=name)
    if len(url) - comma > max_bytes * 4 // 3 + _AROUND_CHARS:
        raise too_large(name, max_bytes)
    if url[:comma].lower().endswith(";base64"):
        try:
            # As urlsafe and unpadded forms are no base64 to others, they are none here.
            content = base64.b64decode(url[comma + 1 :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"{name}: the content of the data URL is not base64", param=name) from error
    else:
        content = unquote_to_bytes(url[comma + 1 :])
    if not content:
        raise InvalidRequest(f"{name}: the data URL has no content", param=name)
    if len(content) > max_bytes:
        raise too_large(name, max_bytes)
    return content


def too_large(name: str, max_bytes: int) -> InvalidRequest:
    """What is said of a medium of too many bytes."""
    return InvalidRequest(f"{name} has more than {max_bytes} bytes; no more are allowed", param=name)
