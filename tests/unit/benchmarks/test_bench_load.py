"""load: an answer ends where it ends, however the socket cuts it, and a broken one fails the run."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gateway.answers import WrongAnswer
from benchmarks.gateway.load import Connection, Load, put_load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answerer = Callable[[asyncio.StreamWriter], Awaitable[None]]

EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"x10"},"finish_reason":"length"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}\n\n',
    b"data: [DONE]\n\n",
)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-tries: 0\r\n\r\n"
STREAM = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n" + b"ends 0\r\n\r\nhere"


class SilentTransport(asyncio.Transport):
    """Takes what is written and drops it."""

    def write(self, data: Any) -> None:
        pass


@pytest.mark.parametrize("raw", [STREAM, SIZED], ids=["chunked", "sized"])
@given(cuts=st.sets(st.integers(1, len(SIZED) - 1), max_size=12))
def test_the_end_of_an_answer_does_not_depend_on_how_it_is_cut(raw: bytes, cuts: set[int]):
    async def feed() -> bytes:
        connection = Connection()
        connection.connection_made(SilentTransport())
        task = asyncio.ensure_future(connection.send(b"{}"))
        await asyncio.sleep(0)
        edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
        for start, end in itertools.pairwise(edges):
            assert not task.done()
            connection.data_received(raw[start:end])
        return b"".join((await task).raw)

    assert asyncio.run(feed()) == raw


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answerer], Awaitable[int]]]:
    servers: list[asyncio.Server] = []

    async def start(answer: Answerer) -> int:
        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    await reader.readuntil(b"{}")
                    await answer(writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        servers.append(server)
        return cast("int", server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


def load_on(port: int, requests: int = 6) -> Load:
    return Load(
        port=port, is_stream=True, concurrency=2, tokens=1, bodies=[b"{}"] * requests, warm_bodies=[b"{}"]
    )


async def test_every_answer_of_a_load_is_counted_but_the_warm_up(serve: Any):
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)

    done = await put_load(load_on(await serve(answer)), {"gateway": os.getpid()})
    assert (done.requests, done.tokens, done.content_events, done.prompt_tokens) == (6, 6, 6, 24)
    assert done.answers == ["x10"] * 6
    assert done.cpu["gateway"].total_s > 0


async def test_a_stream_without_its_end_fails_the_load(serve: Any):
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM.replace(b"e\r\n" + EVENTS[2] + b"\r\n", b""))

    with pytest.raises(WrongAnswer, match="DONE"):
        await put_load(load_on(await serve(answer)), {})


async def test_a_connection_that_closes_in_mid_answer_fails_the_load(serve: Any):
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM[:-20])
        writer.close()

    with pytest.raises(WrongAnswer, match="middle of an answer"):
        await put_load(load_on(await serve(answer)), {})


async def test_bytes_after_an_answer_make_the_connection_useless():
    connection = Connection()
    connection.connection_made(SilentTransport())
    task = asyncio.ensure_future(connection.send(b"{}"))
    await asyncio.sleep(0)
    connection.data_received(STREAM)
    await task
    connection.data_received(b"more")
    with pytest.raises(WrongAnswer, match="outside an answer: b'more'"):
        await connection.send(b"{}")
