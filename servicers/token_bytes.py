"""Token ids as they travel: unsigned, four bytes each, little-endian."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ID_BYTES = 4
_IS_LITTLE = sys.byteorder == "little"


def ids_from_bytes(data: bytes) -> array[int]:
    """The ids of a field such as Generate.prompt_ids. The length must be a multiple of four."""
    ids = array("I", data)
    if not _IS_LITTLE:
        ids.byteswap()
    return ids


def ids_to_bytes(ids: Iterable[int]) -> bytes:
    """The bytes of a field such as Finished.token_ids."""
    values = array("I", ids)
    if not _IS_LITTLE:
        values.byteswap()
    return values.tobytes()
