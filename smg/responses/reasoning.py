"""Carries reasoning through clients that keep their history themselves: text to an opaque blob, and back.

S1: the blob is the text in version-tagged base64; opaque, not encrypted.
"""

from __future__ import annotations

import base64
import binascii

VERSION = "smg-reasoning-v1."


def sealed(text: str) -> str:
    """The blob for `encrypted_content`."""
    return VERSION + base64.b64encode(text.encode()).decode()


def unsealed(blob: str) -> str | None:
    """The text in a blob; None for one that is not ours, which a client may have from another server."""
    if not blob.startswith(VERSION):
        return None
    try:
        return base64.b64decode(blob[len(VERSION) :], validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
