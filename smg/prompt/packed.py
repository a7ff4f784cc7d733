"""Token ids as bytes: unsigned, 32 bits, little-endian, as the engine protocol carries them."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ID_BYTES = 4


def pack_ids(ids: Iterable[int]) -> bytes:
    """Ids to bytes.

    Raises:
        OverflowError: an id is negative or takes more than 32 bits.
        TypeError: an id is not a whole number.
    """
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(packed: bytes) -> list[int]:
    """Bytes to ids."""
    ids = array("I", packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()
