"""Turns a worker's stream of zip bytes into tokenizer files in a directory.

A worker is not trusted here: its archive may neither write outside the directory, nor fill the disk, nor plant links.
Checksum first, then names and sizes of all members, and only then the first byte of a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Protocol

from smg.errors import DATA_LOSS, NOT_FOUND, UNIMPLEMENTED, EngineError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence

    from smg.workers.options import WorkerOptions

_BLOCK_BYTES = 1024 * 1024
_NOTHING_TO_GIVE = frozenset((NOT_FOUND, UNIMPLEMENTED))


class ArchiveChunk(Protocol):
    """A piece of the archive, as both protocols have it."""

    @property
    def data(self) -> bytes:
        """The next bytes."""
        ...

    @property
    def sha256(self) -> str:
        """SHA-256 of the whole archive, hex; on the last piece only."""
        ...


async def save_archive(chunks: AsyncIterable[ArchiveChunk], target: Path, options: WorkerOptions) -> None:
    """Receive an archive and unpack it into an empty directory.

    Raises:
        NotFound: the worker has no tokenizer to give.
        EngineError: the transfer failed, or the archive is damaged, too large or unsafe.
    """
    with tempfile.TemporaryFile() as file:
        try:
            await _receive(chunks, file, options.tokenizer_archive_bytes)
        except EngineError as error:
            if error.engine_code in _NOTHING_TO_GIVE:
                raise NotFound(f"the worker has no tokenizer to give: {error.message}") from error
            raise
        except _BadArchive as fault:
            raise _refused(fault) from fault
        try:
            await asyncio.to_thread(unpack, file, target, options)
        except _BadArchive as fault:
            raise _refused(fault) from fault


class _BadArchive(Exception):
    """The archive cannot be used; the text says why."""


def _refused(fault: _BadArchive) -> EngineError:
    return EngineError(f"the tokenizer that the worker gave: {fault}", engine_code=DATA_LOSS)


async def _receive(chunks: AsyncIterable[ArchiveChunk], file: IO[bytes], limit: int) -> None:
    """Write the archive to a file and check its checksum."""
    digest, expected, size = hashlib.sha256(), "", 0

    def append(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    async for chunk in chunks:
        data = chunk.data
        size += len(data)
        if size > limit:
            raise _BadArchive(f"archive is longer than the {limit} bytes allowed")
        await asyncio.to_thread(append, data)
        expected = chunk.sha256 or expected
    if not expected:
        raise _BadArchive("archive came without a checksum")
    if digest.hexdigest() != expected.lower():
        raise _BadArchive(f"checksum is {digest.hexdigest()}, the worker announced {expected}")


def unpack(file: IO[bytes], target: Path, options: WorkerOptions) -> None:
    """Unpack a zip file into an empty directory. Blocks."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            _check(members, options)
            for member in members:
                path = target / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("xb") as destination:
                    shutil.copyfileobj(source, destination, _BLOCK_BYTES)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as fault:
        raise _BadArchive(f"not a zip archive that can be read: {fault}") from fault
    except OSError as fault:
        raise _BadArchive(f"could not be written: {fault}") from fault


def _check(members: Sequence[zipfile.ZipInfo], options: WorkerOptions) -> None:
    if len(members) > options.tokenizer_archive_files:
        raise _BadArchive(f"{len(members)} files, at most {options.tokenizer_archive_files} are allowed")
    # ZipFile never yields more than the announced size of a member, so the announced sizes are a real bound.
    size = sum(member.file_size for member in members)
    if size > options.tokenizer_archive_bytes:
        raise _BadArchive(f"{size} bytes unpacked, at most {options.tokenizer_archive_bytes} are allowed")
    for member in members:
        path = PurePosixPath(member.filename)
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename or is_link:
            raise _BadArchive(f"unsafe member {member.filename!r}")
