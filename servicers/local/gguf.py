"""Reads GGUF files: metadata, and tensors as float32 or as they lie in the file.

The file is mapped, not read: a tensor's pages are loaded when it is asked for. Every length in the file is checked
against the file's end before it is used, so a damaged file gives a ModelFileError and never a wild read. Format:
github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from servicers.local.config import ModelFileError
from servicers.local.gguf_blocks import BLOCK_FORMATS, TYPE_NAMES

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4

_UINT32, _STRING, _ARRAY, _UINT64 = 4, 8, 9, 10
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_LENGTH = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies. `shape` is torch's order: rows first."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    size_bytes: int


class GgufFile:
    """An open GGUF file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            ModelFileError: missing, not GGUF, truncated, or a tensor of an unknown type.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"cannot read {path}: {error}") from error
        cursor = _Cursor(self._map, path)
        if cursor.take(4) != MAGIC:
            raise ModelFileError(f"{path} is not a GGUF file: it does not start with {MAGIC!r}")
        version = cursor.scalar(_UINT32)
        if version not in VERSIONS:
            raise ModelFileError(f"{path} has GGUF version {version}; supported: {VERSIONS}")
        tensors, pairs = cursor.scalar(_UINT64), cursor.scalar(_UINT64)
        self.metadata: dict[str, Any] = {}
        """Values are int, float, bool, str, a list of str, or a numpy array."""
        for _ in range(pairs):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar(_UINT32))
        headers = [_read_header(cursor) for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelFileError(f"{path}: general.alignment is {alignment!r}; it must be at least 1")
        base = math.ceil(cursor.position / alignment) * alignment
        self.tensors = {name: self._locate(name, shape, kind, base + at) for name, shape, kind, at in headers}

    def _locate(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
        block = BLOCK_FORMATS.get(kind)
        if block is None:
            known = ", ".join(TYPE_NAMES[number] for number in BLOCK_FORMATS)
            named = TYPE_NAMES.get(kind, f"number {kind}")
            raise ModelFileError(f"{self.path}: tensor {name} has type {named}; supported: {known}")
        row = shape[-1] if shape else 1
        if row % block.elements:
            raise ModelFileError(
                f"{self.path}: rows of tensor {name} have {row} elements, not a multiple of {block.elements}"
            )
        size = math.prod(shape) // block.elements * block.size_bytes
        if offset + size > len(self._map):
            missing = offset + size - len(self._map)
            raise ModelFileError(
                f"{self.path} is truncated: tensor {name} ends {missing} bytes behind the file's end"
            )
        return GgufTensor(name, shape, kind, offset, size)

    def raw(self, name: str) -> np.ndarray:
        """The blocks of a tensor, [blocks, bytes of one block] uint8, without a copy."""
        tensor = self.tensors[name]
        data = np.frombuffer(self._map, np.uint8, tensor.size_bytes, tensor.offset)
        return data.reshape(-1, BLOCK_FORMATS[tensor.kind].size_bytes)

    def floats(self, name: str) -> np.ndarray:
        """A tensor as float32 in its shape. A plain float32 tensor is a read-only view of the file."""
        tensor = self.tensors[name]
        return BLOCK_FORMATS[tensor.kind].to_floats(self.raw(name)).reshape(tensor.shape)


def _read_header(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string()
    dimensions = cursor.scalar(_UINT32)
    if dimensions > MAX_DIMENSIONS:
        raise ModelFileError(
            f"{cursor.path}: tensor {name!r} has {dimensions} dimensions; at most {MAX_DIMENSIONS}"
        )
    sizes = tuple(cursor.scalar(_UINT64) for _ in range(dimensions))
    return name, sizes[::-1], cursor.scalar(_UINT32), cursor.scalar(_UINT64)


class _Cursor:
    """Reads values one after another, never past the end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self.path = path
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise ModelFileError(
                f"{self.path} is truncated: it ends inside its header at byte {len(self._data)}"
            )
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def scalar(self, kind: int) -> Any:
        layout = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(layout.itemsize), layout)[0].item()

    def string(self) -> str:
        (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        if kind in _SCALARS:
            return self.scalar(kind)
        raise ModelFileError(f"{self.path}: metadata value of unknown type {kind} at byte {self.position}")

    def _array(self) -> Any:
        kind, count = self.scalar(_UINT32), self.scalar(_UINT64)
        if kind == _STRING:
            return self._strings(count)
        if kind not in _SCALARS:
            raise ModelFileError(
                f"{self.path}: metadata array of unsupported type {kind} at byte {self.position}"
            )
        layout = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(count * layout.itemsize), layout)

    def _strings(self, count: int) -> list[str]:
        # A vocabulary has 100,000 of these: no method call for each.
        data, position, unpack = self._data, self.position, _LENGTH.unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                (length,) = unpack(data, position)
                position += 8 + length
                piece = data[position - length : position]
                if len(piece) != length:
                    break
                strings.append(piece.decode("utf-8", "replace"))
        except struct.error:
            pass
        if len(strings) != count:
            raise ModelFileError(f"{self.path} is truncated: it ends inside its header at byte {len(data)}")
        self.position = position
        return strings
