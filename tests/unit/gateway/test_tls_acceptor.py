"""TlsAcceptor: every connection comes to its protocol, is told what is wrong, or is closed; in bounded time and number."""

import asyncio
import contextlib
import errno
import ssl
from contextlib import asynccontextmanager

import pytest

from gateway import tls_acceptor
from gateway.listener import bind
from gateway.tls_acceptor import TlsAcceptor
from tests.certificates import Authority


class Hello(asyncio.Protocol):
    """Says hello and closes."""

    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def accepting(authority, handshake_s=30.0):
    """The port and the acceptor."""
    issued = authority.issue("server", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    acceptor = TlsAcceptor(bound, Hello, lambda: context, handshake_s, 5.0)
    try:
        yield port, acceptor
    finally:
        acceptor.close()
        # Its tasks have been cancelled: let them end.
        await asyncio.gather(*acceptor._tasks, *acceptor._ending, return_exceptions=True)


async def until(condition):
    """Let everything else run until a condition holds. The test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - a state, for which there is no event
        await asyncio.sleep(0)


async def answer(port, authority):
    """What a client gets that speaks TLS."""
    context = ssl.create_default_context(cafile=authority.path)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_clients_are_served_side_by_side(authority):
    async with accepting(authority) as (port, _):
        assert await asyncio.gather(*(answer(port, authority) for _ in range(20))) == [b"hello"] * 20


async def test_who_says_nothing_does_not_keep_others_out(authority):
    async with accepting(authority) as (port, acceptor):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        assert await answer(port, authority) == b"hello"
        assert len(acceptor._tasks) >= 5
        for _, writer in silent:
            writer.close()


async def test_only_so_many_are_waited_for_and_the_first_gives_way(authority, monkeypatch, caplog):
    monkeypatch.setattr(tls_acceptor, "MAX_HANDSHAKES", 3)
    async with accepting(authority) as (port, acceptor):
        silent = []
        for number in range(6):
            silent.append(await asyncio.open_connection("127.0.0.1", port))
            await until(lambda: len(acceptor._tasks) == min(len(silent), 3))
            if number >= 3:
                # Who came first is told by a closed connection; the others are still waited for.
                assert await silent[number - 3][0].read() == b""
        assert await answer(port, authority) == b"hello"
        assert not any(reader.at_eof() for reader, _ in silent[4:])
        for _, writer in silent:
            writer.close()
        await until(lambda: not acceptor._tasks)
    assert len([each for each in caplog.records if "agreement on TLS" in each.message]) == 1


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00"])
async def test_what_is_no_tls_is_told_so(authority, opening):
    async with accepting(authority) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(opening)
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 400 ")
        assert b"HTTPS" in told
        writer.close()


@pytest.mark.parametrize("opening", [b"\x16", b"\x16\x03\x01", b"\x16" + b"\xff" * 5000])
async def test_half_a_handshake_ends(authority, opening):
    async with accepting(authority, handshake_s=0.1) as (port, acceptor):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(opening)
        with contextlib.suppress(ConnectionResetError):
            # An alert may come, HTTP never does.
            assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        await until(lambda: not acceptor._tasks)


async def test_a_client_that_leaves_at_once_is_forgotten(authority):
    async with accepting(authority) as (port, acceptor):
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
        assert await answer(port, authority) == b"hello"
        await until(lambda: not acceptor._tasks)


async def test_without_file_descriptors_it_waits_and_goes_on(authority, monkeypatch, caplog):
    monkeypatch.setattr(tls_acceptor, "_EXHAUSTED_S", 0.01)
    faults = [OSError(errno.EMFILE, "Too many open files")] * 2

    class Poor:
        """The socket of an acceptor whose process has too many files open, at first."""

        def __init__(self, bound):
            self._bound = bound

        def __getattr__(self, name):
            return getattr(self._bound, name)

        def accept(self):
            if faults:
                raise faults.pop()
            return self._bound.accept()

    async with accepting(authority) as (port, acceptor):
        acceptor._socket = Poor(acceptor._socket)
        assert await answer(port, authority) == b"hello"
    assert not faults
    assert sum("Too many open files" in each.message for each in caplog.records) == 2


async def test_closing_takes_nothing_more_and_leaves_nothing_behind(authority):
    async with accepting(authority) as (port, acceptor):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: acceptor._tasks)
        acceptor.close()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
