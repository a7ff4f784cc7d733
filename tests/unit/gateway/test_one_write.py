"""HeadHolder and OneWriteProtocol: the bytes are the same, the writes are fewer."""

import asyncio

import pytest

from gateway.listener import HttpListener, bind
from gateway.one_write import HeadHolder


class Transport:
    """Remembers writes."""

    def __init__(self):
        self.writes = []
        self.is_closed = False

    def write(self, data):
        self.writes.append(data)

    def close(self):
        self.is_closed = True

    def get_extra_info(self, name):
        return name


def test_the_head_leaves_with_what_follows_it():
    transport = Transport()
    holder = HeadHolder(transport)
    holder.write(b"before")
    holder.expect_head()
    holder.write(b"head ")
    assert transport.writes == [b"before"]
    holder.write(b"body")
    holder.write(b"more")
    assert transport.writes == [b"before", b"head body", b"more"]


def test_an_interim_answer_is_not_kept_back():
    transport = Transport()
    holder = HeadHolder(transport)
    holder.expect_head()
    holder.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    holder.write(b"head ")
    holder.write(b"body")
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n", b"head body"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_head_without_a_body_is_written_at_the_end(end):
    transport = Transport()
    holder = HeadHolder(transport)
    holder.expect_head()
    holder.write(b"head")
    getattr(holder, end)()
    assert transport.writes == [b"head"]
    assert transport.is_closed == (end == "close")
    holder.flush()
    assert transport.writes == [b"head"]


def test_everything_else_goes_through():
    assert HeadHolder(Transport()).get_extra_info("peername") == "peername"


async def exchange(port, raw, until_closed=True):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await reader.read() if until_closed else b""
    writer.close()
    return answer


async def app(scope, receive, send):
    await receive()
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] != "/broken":
        await send({"type": "http.response.body", "body": b"ok"})


async def test_pipelined_head_and_broken_answers_are_what_they_would_be():
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    listener = HttpListener(app, bound, 60)
    serving = asyncio.create_task(listener.run())
    await listener.wait_started()
    get = b"GET / HTTP/1.1\r\nhost: x\r\n"
    two = await exchange(port, get + b"\r\n" + get + b"connection: close\r\n\r\n")
    assert two.count(b"HTTP/1.1 200 OK") == 2
    assert two.count(b"\r\n\r\nok") == 2
    head = await exchange(port, b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert head.endswith(b"\r\n\r\n")
    broken = await exchange(port, b"GET /broken HTTP/1.1\r\nhost: x\r\n\r\n")
    assert broken.startswith(b"HTTP/1.1 200 OK")
    garbage = await exchange(port, b"nonsense\r\n\r\n")
    assert garbage.startswith(b"HTTP/1.1 400 ")
    listener.stop(1)
    await serving
    bound.close()
