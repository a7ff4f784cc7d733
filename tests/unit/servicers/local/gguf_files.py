"""Writes small GGUF files, valid ones and damaged ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
ALIGNMENT = 32


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(content: Any) -> bytes:
    if isinstance(content, bool):
        return struct.pack("<I?", BOOL, content)
    if isinstance(content, int):
        return struct.pack("<II", U32, content)
    if isinstance(content, float):
        return struct.pack("<If", F32, content)
    if isinstance(content, str):
        return struct.pack("<I", STRING) + string(content)
    if content and isinstance(content[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(content)) + b"".join(map(string, content))
    return struct.pack("<IIQ", ARRAY, I32, len(content)) + np.asarray(content, "<i4").tobytes()


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]],
    *,
    version: int = 3,
) -> bytes:
    """A whole file. Tensors are name -> (shape with rows first, type number, data)."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    header += b"".join(string(key) + value(content) for key, content in metadata.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        body += b"\0" * (-len(body) % ALIGNMENT)
        header += string(name) + struct.pack("<I", len(shape))
        header += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += data
    return header + b"\0" * (-len(header) % ALIGNMENT) + body


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """A file of float32 tensors."""
    packed = {name: (array.shape, 0, array.astype("<f4").tobytes()) for name, array in tensors.items()}
    path.write_bytes(gguf_bytes(metadata, packed))
    return path
