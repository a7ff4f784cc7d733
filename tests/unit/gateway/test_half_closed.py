"""A client that has finished sending gets its answers; one that has left is noticed, though both look alike at first."""

import asyncio

import pytest

from gateway.sse import HEADERS
from tests.unit.gateway.serving import Counts, gateway, listening

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Slow:
    """A handler that waits to be told to answer, and remembers being cancelled."""

    def __init__(self):
        self.begun, self.free, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def whole(self, request, reply):
        await self._wait()
        reply.start(200, [(b"content-length", b"%d" % len(request.body))])
        reply.end(request.body)

    async def stream(self, request, reply):
        """Events; the first one at once."""
        self.app.keep_alive.add(reply, lambda: None)
        reply.start(200, HEADERS)
        reply.write(b"data: 1\n\n")
        await self._wait()
        reply.end(b"data: 2\n\n")

    async def _wait(self):
        self.begun.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def slow():
    slow = Slow()
    slow.counts = Counts()
    routes = (("POST", "/", slow.whole), ("GET", "/stream", slow.stream))
    slow.app = gateway(*routes, counts=slow.counts)
    return slow


def post(body, version=b"1.1"):
    return b"POST / HTTP/%b\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (version, len(body), body)


async def send(port, raw):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    return reader, writer


async def test_an_answer_that_takes_long_comes_after_the_client_has_finished_sending(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, post(b"one"))
        writer.write_eof()
        assert await reader.readexactly(len(CONTINUE)) == CONTINUE
        slow.free.set()
        rest = await reader.read()
        writer.close()
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert rest.endswith(b"connection: close\r\n\r\none")


async def test_an_answer_that_is_there_at_once_is_not_announced(slow):
    slow.free.set()
    async with listening(slow.app) as port:
        reader, writer = await send(port, post(b"one"))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"one")


async def test_all_requests_before_the_end_of_input_are_answered(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, post(b"one") + post(b"two"))
        writer.write_eof()
        await slow.begun.wait()
        slow.free.set()
        answer = (await reader.read()).replace(CONTINUE, b"")
        writer.close()
    first, second = answer.split(b"HTTP/1.1 200 OK")[1:]
    assert first.endswith(b"\r\n\r\none")
    assert second.endswith(b"\r\n\r\ntwo")


async def test_a_stream_goes_on_after_a_comment(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"data: 1\n\n")
        writer.write_eof()
        await reader.readuntil(b": ping\n\n")
        slow.free.set()
        assert b"data: 2\n\n" in await reader.read()
        writer.close()


@pytest.mark.parametrize("raw", [post(b"one"), post(b"one", b"1.0")], ids=["1.1", "1.0"])
async def test_a_client_that_has_left_before_the_answer_is_noticed(slow, raw):
    async with listening(slow.app) as port:
        _, writer = await send(port, raw)
        await slow.begun.wait()
        writer.close()
        await slow.cancelled.wait()
        await slow.counts.changed.wait()
    assert slow.counts.responses == [("root", 499)]


async def test_a_client_that_has_left_a_silent_stream_is_noticed(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"data: 1\n\n")
        writer.close()
        await slow.cancelled.wait()


async def test_a_client_that_half_closes_and_leaves_later_is_noticed(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, post(b"one"))
        writer.write_eof()
        await reader.readexactly(len(CONTINUE))
        writer.close()
        await slow.cancelled.wait()


async def test_half_a_request_with_its_end_is_nobody_s(slow):
    async with listening(slow.app) as port:
        reader, writer = await send(port, post(b"one")[:-1])
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert not slow.begun.is_set()
