"""Reads what clients say about placement in headers and gRPC metadata.

A hint that is malformed or over its limit counts as absent, and never as an error. X-SMG-Target-Worker is no hint but a
demand: a value that names no worker is kept as one that no worker has, so that the policy that honors it can refuse it.
"""

from __future__ import annotations

import re
import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUTING_KEY_BYTES = 128
HINT_TOKENS = 512
HINT_BYTES = 4096
HIGHEST_TOKEN_ID = 2**32 - 1
# Further digits could only name a worker that no fleet has.
_TARGET_DIGITS = 9

# Turns and retries, as the original gateway marks them.
_MARKS = re.compile(r"(?:_[tr][0-9]+)+\Z", re.ASCII)
_YES = frozenset((b"1", b"true", "1", "true"))

# The index of no worker: what a target that is not a number asks for.
NO_WORKER = -1


def parse_routing_key(value: bytes | str | None) -> str:
    """The routing key: non-empty UTF-8 of at most 128 bytes. Empty when there is none, or none that counts."""
    if not value:
        return ""
    try:
        raw = value if isinstance(value, bytes) else value.encode()
        return raw.decode() if len(raw) <= ROUTING_KEY_BYTES else ""
    except UnicodeError:
        return ""


def first_routing_key(values: Iterable[bytes | str | None]) -> str:
    """The first routing key that counts among the values of several headers; empty when none does."""
    for value in values:
        if value and (key := parse_routing_key(value)):
            return key
    return ""


def lineage_key(rid: str) -> str:
    """The routing key that a request's own `rid` stands for: without the marks of turns and retries at its end.

    `conv_t1`, `conv_t2` and `conv_t2_r1` are turns and a retry of `conv`.
    """
    return parse_routing_key(_MARKS.sub("", rid)) if rid else ""


def asks_for_reason(value: bytes | str | None) -> bool:
    """The caller wants to know why its worker was picked."""
    return value is not None and value.strip().lower() in _YES


def parse_routing_tokens(value: bytes | str | None) -> bytes:
    """The prompt's leading token ids, four bytes each, little-endian. Empty when there are none, or none that count.

    The form is decimal integers from 0 to 4294967295 with commas between them and nothing else, at most 512 of them
    in at most 4096 bytes.
    """
    if not value or len(value) > HINT_BYTES:
        return b""
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return b""
    items = text.split(",", HINT_TOKENS)
    if len(items) > HINT_TOKENS or not all(item.isascii() and item.isdigit() for item in items):
        return b""
    ids = [int(item) for item in items]
    if max(ids) > HIGHEST_TOKEN_ID:
        return b""
    packed = array("I", ids)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def parse_target_worker(value: bytes | str | None) -> int | None:
    """The index of the worker that the caller insists on: None without the header, NO_WORKER when it is no index."""
    if value is None:
        return None
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if text.isascii() and text.isdigit() and len(text) <= _TARGET_DIGITS:
        return int(text)
    return NO_WORKER
