"""HeadHolder and OneWriteProtocol: the bytes are the same, the writes are fewer."""

import asyncio
import contextlib

import pytest

from gateway.app import GatewayApp, Limits
from gateway.listener import HttpListener, bind
from gateway.one_write import HeadHolder
from gateway.routes import Route, RouteTable
from gateway.sse import KeepAlive
from smg.types.callers import CallerDirectory


class Transport:
    """Remembers writes."""

    def __init__(self):
        self.writes = []
        self.is_closed = False

    def write(self, data):
        self.writes.append(data)

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_aborted = True

    def call_later(self, delay_s, call):
        self.delay_s, self.late = delay_s, call
        return self

    def cancel(self):
        self.late = None

    def get_extra_info(self, name):
        return name


def test_the_head_leaves_with_what_follows_it():
    transport = Transport()
    holder = HeadHolder(transport, transport, 60)
    holder.write(b"before")
    holder.expect_head()
    holder.write(b"head ")
    assert transport.writes == [b"before"]
    holder.write(b"body")
    holder.write(b"more")
    assert transport.writes == [b"before", b"head body", b"more"]


def test_an_interim_answer_is_not_kept_back():
    transport = Transport()
    holder = HeadHolder(transport, transport, 60)
    holder.expect_head()
    holder.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    holder.write(b"head ")
    holder.write(b"body")
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n", b"head body"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_head_without_a_body_is_written_at_the_end(end):
    transport = Transport()
    holder = HeadHolder(transport, transport, 60)
    holder.expect_head()
    holder.write(b"head")
    getattr(holder, end)()
    assert transport.writes == [b"head"]
    assert transport.is_closed == (end == "close")
    holder.flush()
    assert transport.writes == [b"head"]


def test_a_closed_connection_is_cut_when_its_client_does_not_read_the_rest():
    transport = Transport()
    holder = HeadHolder(transport, transport, 60)
    holder.close()
    assert transport.delay_s == 60
    transport.late()
    assert transport.is_aborted
    holder.forget()
    assert transport.late is None


def test_everything_else_goes_through():
    assert HeadHolder(Transport(), None, 60).get_extra_info("peername") == "peername"


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


@contextlib.asynccontextmanager
async def listening(application, idle_s=60, grace_s=20):
    bound = bind("127.0.0.1", 0)
    listener = HttpListener(application, bound, idle_s)
    serving = asyncio.create_task(listener.run())
    await listener.wait_started()
    try:
        yield bound.getsockname()[1]
    finally:
        listener.stop(grace_s)
        await serving
        bound.close()


async def echo(scope, receive, send):
    body, more = b"", scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    answer = b"<" + body + b">"
    headers = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


POST = b"POST / HTTP/1.1\r\nhost: x\r\n"


async def test_a_connection_whose_request_does_not_arrive_is_closed():
    get = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    expected = {
        b"": [],
        b"\r\n": [],
        b"POST / HT": [b"408"],
        POST + b"x-half: ": [b"408"],
        POST + b"content-length: 9\r\n\r\nabc": [b"408"],
        get + b"\r\n": [b"200"],
        get + POST: [b"200", b"408"],
        b"PUT /early HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc": [b"200"],
    }
    async with listening(echo, idle_s=1) as port:
        answers = await asyncio.gather(*(exchange(port, sent) for sent in expected))
    got = [[part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] for answer in answers]
    assert dict(zip(expected, got, strict=True)) == expected


async def test_a_long_answer_is_not_cut_by_half_a_request_behind_it():
    async def slow(scope, receive, send):
        await receive()
        await asyncio.sleep(1.3)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with listening(slow, idle_s=1) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT")
    assert b"\r\n\r\nok" in answer


@pytest.mark.parametrize(
    "head",
    [
        POST + b"x-long: " + b"a" * 70_000 + b"\r\n\r\n",
        POST + b"".join(b"x-%d: %s\r\n" % (i, b"a" * 1000) for i in range(80)) + b"\r\n",
        POST + b"".join(b"x-%d: a\r\n" % i for i in range(256)) + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
async def test_a_head_past_the_limit_is_refused(head):
    async with listening(echo) as port:
        assert (await exchange(port, head)).startswith(b"HTTP/1.1 431 ")


async def test_a_header_without_an_end_is_refused_before_it_is_complete():
    async with listening(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"x-long: ")
        answer = b""
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b"a" * 65536)
                await writer.drain()
            pytest.fail("64 MiB of one header were taken")
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
        writer.close()
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")


async def test_a_head_within_the_limit_is_served():
    head = (
        POST + b"".join(b"x-%d: %s\r\n" % (i, b"a" * 200) for i in range(250)) + b"connection: close\r\n\r\n"
    )
    async with listening(echo) as port:
        assert (await exchange(port, head)).endswith(b"<>")


UPGRADE = POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
async def test_an_upgrade_is_ignored_and_the_body_is_read(piece_bytes):
    raw = (
        UPGRADE
        + b"content-length: 5\r\n\r\nfirst"
        + UPGRADE
        + b"transfer-encoding: chunked\r\n\r\n3\r\nsec\r\n3\r\nond\r\n0\r\n\r\n"
        + UPGRADE
        + b"\r\n"
        + POST
        + b"connection: close\r\ncontent-length: 4\r\n\r\nlast"
    )
    async with listening(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in range(0, len(raw), piece_bytes):
            writer.write(raw[start : start + piece_bytes])
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"<first>", b"<second>", b"<>", b"<last>"]


class Drops:
    """An observer that tells when a client was dropped."""

    def __init__(self):
        self.dropped = asyncio.Event()

    def http_response(self, route, status):
        pass

    def slow_reader_aborted(self):
        self.dropped.set()


@pytest.mark.timeout(20)
async def test_the_connection_of_a_client_that_does_not_read_is_cut_and_stopping_does_not_wait_for_it():
    async def flood(request, reply):
        reply.start(200, [])
        while True:
            reply.write(b"a" * 100_000)
            await asyncio.sleep(0)

    observer = Drops()
    routes = RouteTable([Route("GET", "/", flood, "flood", "open", "x")])
    limits = Limits(100, 1_000_000, 60.0, (b"x-request-id",))
    application = GatewayApp(routes, CallerDirectory(), KeepAlive(0), limits, observer)
    # Stopping gives open connections longer than this test may take.
    async with listening(application, grace_s=3600) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readexactly(1)
        await observer.dropped.wait()
    writer.transport.abort()
