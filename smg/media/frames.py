"""The messages between the router and its media processes: a line of JSON about parts, then the parts, as they are.

Four bytes tell the length of the JSON, little-endian; its member `parts` tells the lengths of what follows.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LENGTH = struct.Struct("<I")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _AsyncReadable(Protocol):
    async def readexactly(self, n: int, /) -> bytes: ...


def frame(head: dict[str, Any], parts: Sequence[bytes] = ()) -> Iterable[bytes]:
    """A message, in pieces to be written one after the other."""
    text = json.dumps({**head, "parts": [len(part) for part in parts]}).encode()
    return (_LENGTH.pack(len(text)) + text, *parts)


def read_frame(source: _Readable) -> tuple[dict[str, Any], list[bytes]] | None:
    """The next message; None at the end."""
    length = source.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    head = cast("dict[str, Any]", json.loads(source.read(*_LENGTH.unpack(length))))
    return head, [source.read(size) for size in head["parts"]]


async def receive_frame(source: _AsyncReadable) -> tuple[dict[str, Any], list[bytes]]:
    """The next message. Raises asyncio.IncompleteReadError at the end."""
    (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
    head = cast("dict[str, Any]", json.loads(await source.readexactly(length)))
    return head, [await source.readexactly(size) for size in head["parts"]]
