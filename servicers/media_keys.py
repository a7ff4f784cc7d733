"""Tells media apart where a prefix cache compares tokens: their placeholders are equal, their keys are not.

A key of a medium's token is 62 bits of the medium's digest with the bit above them set, so that no token id is one. In
events of the cache it is the lower 31 bits with the 32nd set, as smg.engine.v1.Medium has it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from servicers.token_bytes import ID_BYTES

if TYPE_CHECKING:
    from smg_proto.engine.v1 import work_pb2

WORDS = 4
KEY_BIT = 1 << 62
WIRE_BIT = 1 << 31
_DIGEST = struct.Struct("<4Q")


def medium_keys(medium: work_pb2.Medium) -> list[int]:
    """The key of each token of a medium."""
    words = [word & (KEY_BIT - 1) | KEY_BIT for word in _DIGEST.unpack(medium.digest)]
    return [words[number % WORDS] for number in range(medium.length)]


def wire_key(key: int) -> int:
    """A key as events of the cache have it."""
    return key & (WIRE_BIT - 1) | WIRE_BIT


def keyed_ids(request: work_pb2.Generate) -> bytes:
    """The prompt as events of the cache have it: its ids where it has no media."""
    if not request.media:
        return request.prompt_ids
    keyed = bytearray(request.prompt_ids)
    for medium in request.media:
        keys = b"".join(struct.pack("<I", wire_key(key)) for key in medium_keys(medium))
        start = medium.offset * ID_BYTES
        keyed[start : start + len(keys)] = keys
    return bytes(keyed)
