"""TLS of a servicer: its flags, what it says of files that cannot be used, and new certificates without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from servicers.base import CannotStart
from servicers.flags import parse_command
from servicers.serve import start_server
from servicers.tls import TlsFiles, server_credentials
from tests.certificates import Authority
from tests.unit.servicers.fakes import RemoteControlledEngine


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def test_flags_name_the_files():
    words = ["--engine", "echo", "--tls-cert-path", "c", "--tls-key-path", "k"]
    assert parse_command(words).tls == TlsFiles("c", "k")
    assert parse_command([*words, "--tls-client-ca-paths", "a", "b"]).tls == TlsFiles("c", "k", ("a", "b"))
    assert parse_command(["--engine", "echo"]).tls is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tls-cert-path", "c"], "belong together"),
        (["--tls-key-path", "k"], "belong together"),
        (["--tls-client-ca-paths", "a"], "needs --tls-cert-path"),
    ],
)
def test_half_of_them_are_refused(words, says, capsys):
    with pytest.raises(SystemExit):
        parse_command(["--engine", "echo", *words])
    assert says in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_named_with_its_flag(authority):
    issued, other = authority.issue("server", "localhost"), authority.issue("other", "localhost")
    missing = "/nowhere/x"
    for files, says in (
        (TlsFiles(missing, issued.key), f"--tls-cert-path '{missing}': cannot be read: No such file"),
        (TlsFiles(issued.certificate, missing), f"--tls-key-path '{missing}': cannot be read"),
        (TlsFiles(issued.key, issued.key), "holds no PEM certificate"),
        (TlsFiles(issued.certificate, issued.certificate), "holds no PEM private key"),
        (TlsFiles(issued.certificate, issued.key, (missing,)), f"--tls-client-ca-paths '{missing}'"),
        (TlsFiles(issued.certificate, other.key), "do not go together"),
    ):
        with pytest.raises(CannotStart) as caught:
            server_credentials(files)
        assert says in str(caught.value)


async def test_a_server_that_cannot_be_encrypted_does_not_start_its_engine(authority):
    engine = RemoteControlledEngine(loads_first=False)
    with pytest.raises(CannotStart, match="--tls-cert-path"):
        await start_server(engine, tls=TlsFiles("/nowhere/x", "/nowhere/y"))


async def test_a_new_certificate_is_shown_without_a_restart(authority, monkeypatch):
    monkeypatch.setattr("servicers.tls.LOOK_S", 0.0)
    issued = authority.issue("renewed", "127.0.0.1")
    server = await start_server(RemoteControlledEngine(), tls=TlsFiles(issued.certificate, issued.key))
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))

    def shown():
        return ssl.get_server_certificate(address, ca_certs=authority.path, timeout=10)

    try:
        before = await asyncio.to_thread(shown)
        authority.issue("renewed", "127.0.0.1")
        os.utime(issued.certificate, ns=(0, 1))
        after = await asyncio.to_thread(shown)
        assert before != after
        # Half of a pair was written: the former stays.
        Path(issued.key).write_text("")  # noqa: ASYNC240 - a few bytes
        assert await asyncio.to_thread(shown) == after
    finally:
        await server.stop(0)
