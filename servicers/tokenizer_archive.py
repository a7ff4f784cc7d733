"""Turns a tokenizer directory into the zip archive that GetTokenizer sends.

The same files give the same bytes on every machine, since the archive's SHA-256 is the tokenizer's fingerprint:
nothing is compressed (zlib builds differ) and no time is recorded. Blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 1024 * 1024
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
_NO_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class TokenizerArchive:
    """A zip archive and its fingerprint."""

    data: bytes
    sha256: str

    def pieces(self) -> Iterator[bytes]:
        """The archive in pieces of at most 1 MiB; at least one, even if it is empty."""
        for start in range(0, max(len(self.data), 1), PIECE_BYTES):
            yield self.data[start : start + PIECE_BYTES]


def pack_tokenizer(directory: Path) -> TokenizerArchive:
    """Pack the tokenizer files that the directory holds.

    Raises:
        FileNotFoundError: it holds no tokenizer.json.
        OSError: a file cannot be read.
    """
    if not (directory / FILES[0]).is_file():
        raise FileNotFoundError(f"{directory} has no {FILES[0]}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in FILES:
            path = directory / name
            if path.is_file():
                member = zipfile.ZipInfo(name, _NO_TIME)
                member.create_system = 3  # Unix, whatever this machine is
                member.external_attr = 0o644 << 16
                archive.writestr(member, path.read_bytes())
    data = buffer.getvalue()
    return TokenizerArchive(data, hashlib.sha256(data).hexdigest())
