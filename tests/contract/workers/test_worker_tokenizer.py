"""Worker.fetch_tokenizer: what arrives is what the worker has, or nothing at all."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest

from smg.errors import EngineError, NotFound
from smg.workers.options import WorkerOptions
from tests.contract.workers.running import QUICK, watched


def archive(members: dict[str, bytes], *, link: str = "") -> bytes:
    """A zip file; `link` names a member that is a symbolic link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if name == link:
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(info, content)
    return buffer.getvalue()


async def refusal(worker, target) -> str:
    with pytest.raises(EngineError) as caught:
        await worker.fetch_tokenizer("m", target)
    return caught.value.message


async def test_the_files_arrive_as_they_are(worker, double, tmp_path):
    files = {"tokenizer.json": b"{}" * 5000, "config.json": b"{}"}
    double.archive = archive(files)
    await worker.fetch_tokenizer("m", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


async def test_a_worker_without_tokenizer_says_not_found(worker, tmp_path):
    with pytest.raises(NotFound):
        await worker.fetch_tokenizer("m", tmp_path)


@pytest.mark.parametrize("digest", ["0" * 64, ""])
async def test_a_wrong_or_missing_checksum_leaves_nothing_behind(worker, double, tmp_path, digest):
    double.archive, double.sha256 = archive({"tokenizer.json": b"{}"}), digest
    assert "checksum" in await refusal(worker, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "..\\evil.json"])
async def test_a_member_outside_the_directory_is_refused(worker, double, tmp_path, name):
    target = tmp_path / "target"
    target.mkdir()
    double.archive = archive({"tokenizer.json": b"{}", name: b"evil"})
    assert "unsafe member" in await refusal(worker, target)
    assert [path.name for path in tmp_path.rglob("*")] == ["target"]


async def test_a_link_is_refused(worker, double, tmp_path):
    double.archive = archive({"tokenizer.json": b"/etc/passwd"}, link="tokenizer.json")
    assert "unsafe member" in await refusal(worker, tmp_path)


async def test_what_is_no_zip_file_is_refused(worker, double, tmp_path):
    double.archive = b"this is not a zip file"
    assert "zip" in await refusal(worker, tmp_path)


async def test_a_file_twice_is_refused(worker, double, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("config.json", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("config.json", b"2")
    double.archive = buffer.getvalue()
    assert "could not be written" in await refusal(worker, tmp_path)


LIMITS = {
    "bytes packed": (
        WorkerOptions(tokenizer_archive_bytes=100),
        {"a": bytes(range(256)) * 4},
        "allowed|exceeds",
    ),
    # A zip bomb: small on the way, large on the disk.
    "bytes unpacked": (WorkerOptions(tokenizer_archive_bytes=10_000), {"a": b"0" * 1_000_000}, "unpacked"),
    "files": (WorkerOptions(tokenizer_archive_files=2), {"a": b"", "b": b"", "c": b""}, "3 files, at most 2"),
}


@pytest.mark.parametrize("case", LIMITS)
async def test_an_archive_over_a_limit_is_refused(double, tmp_path, case):
    options, files, pattern = LIMITS[case]
    double.archive = archive(files)
    async with watched(double.url, options) as watch:
        with pytest.raises(EngineError, match=pattern):
            await watch.worker.fetch_tokenizer("m", tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_download_without_connection_fails_at_once(double, tmp_path):
    async with watched(double.url, QUICK) as watch:
        await double.kill()
        await watch.until(lambda worker: not worker.is_connected)
        with pytest.raises(EngineError, match="not connected"):
            await watch.worker.fetch_tokenizer("m", tmp_path)
        await double.start()
