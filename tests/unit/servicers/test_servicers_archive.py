"""pack_tokenizer: the same files give the same archive, whatever else lies beside them."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile

import pytest

from servicers.tokenizer_archive import FILES, PIECE_BYTES, TokenizerArchive, pack_tokenizer


def write_files(directory, *names):
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text(f"this is {name}")
    return directory


def test_files_come_back_from_the_archive(tmp_path):
    archive = pack_tokenizer(write_files(tmp_path, *FILES, "model.safetensors"))
    with zipfile.ZipFile(io.BytesIO(archive.data)) as opened:
        assert opened.namelist() == list(FILES)
        assert opened.read("config.json") == b"this is config.json"
    assert archive.sha256 == hashlib.sha256(archive.data).hexdigest()


def test_the_fingerprint_depends_on_content_alone(tmp_path):
    first = write_files(tmp_path / "a", "tokenizer.json", "config.json")
    second = write_files(tmp_path / "b", "config.json", "tokenizer.json", "README.md")
    os.utime(second / "tokenizer.json", (1, 1))
    (second / "tokenizer.json").chmod(0o600)
    assert pack_tokenizer(first) == pack_tokenizer(second)
    (second / "config.json").write_text("changed")
    assert pack_tokenizer(first).sha256 != pack_tokenizer(second).sha256


def test_a_directory_without_a_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        pack_tokenizer(write_files(tmp_path, "config.json"))


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_pieces_join_to_the_archive_and_none_is_too_long(size):
    archive = TokenizerArchive(bytes(size), "")
    pieces = list(archive.pieces())
    assert b"".join(pieces) == archive.data
    assert pieces
    assert max(map(len, pieces)) <= PIECE_BYTES
