"""HttpConnection and its reader: requests in whatever pieces, answers in order, and bounds on both."""

import asyncio
import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connection import TICKS_OF_IDLE, HttpConnection
from tests.examples import examples
from tests.unit.gateway.serving import Counts, exchange, gateway, listening

GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"


async def brackets(request, reply):
    """Answers with the body in angle brackets."""
    answer = b"<" + request.body + b">"
    reply.start(200, [(b"content-length", b"%d" % len(answer))])
    reply.end(answer)


async def pieces(request, reply):
    """Answers without saying how long it will be."""
    reply.start(200, [])
    reply.write(b"one")
    await asyncio.sleep(0)
    reply.end(b"two")


def served(**limits):
    routes = [("POST", "/", brackets), ("GET", "/", brackets), ("GET", "/pieces", pieces)]
    return gateway(*routes, **{"max_body_bytes": 100_000, **limits})


class Transport(asyncio.Transport):
    """Remembers what is written, and how."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.is_aborted = self._is_closing = self.is_paused = False

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return self._is_closing

    def close(self):
        self._is_closing = True

    def abort(self):
        self._is_closing = self.is_aborted = True

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


def connected(app):
    transport = Transport()
    loop = asyncio.get_running_loop()
    connection = HttpConnection(app, loop, 60, lambda _: None, lambda _: None)
    connection.connection_made(transport)
    return connection, transport


async def idle(app):
    """Let everything run that runs."""
    await asyncio.sleep(0)
    while app.tasks:
        await asyncio.wait(app.tasks)
    for _ in range(3):
        await asyncio.sleep(0)


def bodies(answers):
    return [part.partition(b"\r\n\r\n")[2] for part in answers.split(b"HTTP/1.1 200 OK")[1:]]


async def test_head_and_body_leave_in_one_write():
    app = served()
    connection, transport = connected(app)
    connection.data_received(POST + b"content-length: 2\r\n\r\nhi")
    await idle(app)
    assert len(transport.written) == 1
    assert transport.written[0].startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert transport.written[0].endswith(b"content-length: 4\r\n\r\n<hi>")


REQUESTS = [
    (POST + b"content-length: 5\r\n\r\nfirst", b"<first>"),
    (
        POST + b"transfer-encoding: chunked\r\n\r\n3\r\nsec\r\n3;x=y\r\nond\r\n0\r\nx-t: 1\r\n\r\n",
        b"<second>",
    ),
    (GET + b"\r\n", b"<>"),
    (b"GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
    (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"content-length: 6\r\n\r\nupward",
        b"<upward>",
    ),
    (POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"<>"),
]


@examples(15)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6), st.data())
def test_requests_in_any_pieces_are_answered_in_order(requests, data):
    raw = b"".join(request for request, _ in requests)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=8)))
    # Drawn here: a draw that fails ends the test, and must not end it between a task and its first step.
    pauses = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))

    async def run():
        app = served()
        connection, transport = connected(app)
        for (begin, end), pause in zip(itertools.pairwise([0, *cuts, len(raw)]), pauses, strict=True):
            connection.data_received(raw[begin:end])
            if pause:
                await idle(app)
        while app.tasks or len(bodies(b"".join(transport.written))) < len(requests):
            await idle(app)
        assert bodies(b"".join(transport.written)) == [answer for _, answer in requests]
        assert not transport.is_paused
        assert not transport.is_closing()

    asyncio.run(run())


async def test_thousands_of_refused_requests_in_one_read_are_all_answered():
    app = served()
    connection, transport = connected(app)
    connection.data_received(GET + b"\r\n" + b"GET /no HTTP/1.1\r\nhost: x\r\n\r\n" * 3000)
    assert transport.is_paused
    while transport.is_paused:  # noqa: ASYNC110 - its state is all there is to wait for
        await asyncio.sleep(0)
    await idle(app)
    assert b"".join(transport.written).count(b"HTTP/1.1 404 ") == 3000


async def test_an_answer_to_head_has_no_body_and_keeps_the_connection():
    app = served()
    connection, transport = connected(app)
    connection.data_received(b"HEAD /pieces HTTP/1.1\r\nhost: x\r\n\r\nHEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
    while len(transport.written) < 2:
        await idle(app)
    assert all(head.endswith(b"\r\n\r\n") for head in transport.written)
    assert b"content-length: 2" in transport.written[1]
    assert not transport.is_closing()


@pytest.mark.parametrize(
    ("request_line", "ending"),
    [
        (
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n",
            b"content-length: 2\r\nconnection: close\r\n\r\n<>",
        ),
        (
            b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n",
            b"content-length: 2\r\nconnection: close\r\n\r\n<>",
        ),
        # Clients of HTTP/1.0 know no chunks.
        (b"GET /pieces HTTP/1.0\r\n", b"connection: close\r\n\r\nonetwo"),
    ],
)
async def test_the_last_answer_of_a_connection_says_so(request_line, ending):
    async with listening(served()) as port:
        assert (await exchange(port, request_line + b"\r\n")).endswith(ending)


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_if_it_is_wanted():
    app = served(max_body_bytes=5)
    expect = b"expect: 100-continue\r\n"
    connection, transport = connected(app)
    connection.data_received(POST + expect + b"content-length: 5\r\n\r\n")
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    connection.data_received(b"abcde")
    await idle(app)
    assert transport.written[1].endswith(b"<abcde>")
    connection.data_received(POST + expect + b"content-length: 6\r\n\r\n")
    assert transport.written[2].startswith(b"HTTP/1.1 413 ")
    assert len(transport.written) == 3


async def test_the_rest_of_a_refused_body_is_read_past():
    app = served(max_body_bytes=5)
    connection, transport = connected(app)
    chunk = b"4\r\nabcd\r\n"
    connection.data_received(POST + b"transfer-encoding: chunked\r\n\r\n" + chunk)
    connection.data_received(chunk + chunk)
    assert transport.written[0].startswith(b"HTTP/1.1 413 ")
    connection.data_received(chunk + b"0\r\n\r\n" + GET + b"\r\n")
    await idle(app)
    assert transport.written[1].endswith(b"<>")


@pytest.mark.parametrize(
    ("raw", "status", "word"),
    [
        (b"nonsense\r\n\r\n", 400, "not an HTTP request"),
        (b"GET /\r\n\r\n", 400, "HTTP version 0.9; allowed: 1.1, 1.0"),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 400, "HTTP version 2.0"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "no Host header"),
        (b"POST / HTTP/1.1\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 400, "no Host header"),
        (GET + b"Host: y\r\n\r\n", 400, "several Host headers"),
        (GET + b"x-long: " + b"a" * 70_000 + b"\r\n\r\n", 431, "65536 bytes and 256 headers are allowed"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_request_is_refused_in_json_and_counted(raw, status, word):
    counts = Counts()
    app = gateway(("GET", "/", brackets), counts=counts)
    async with listening(app) as port:
        head, _, body = (await exchange(port, raw)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"x-request-id: req-" in head
    assert b"connection: close" in head
    assert word in json.loads(body)["error"]["message"]
    assert counts.responses == [("unknown", status)]


async def test_http_1_0_needs_no_host():
    async with listening(served()) as port:
        assert (await exchange(port, b"GET / HTTP/1.0\r\n\r\n")).endswith(b"<>")


async def test_a_handler_that_breaks_its_own_content_length_loses_the_connection():
    async def short(request, reply):
        reply.start(200, [(b"content-length", b"5")])
        reply.end(b"abc")

    async with listening(gateway(("GET", "/", short))) as port:
        assert (await exchange(port, GET + b"\r\n")).endswith(b"\r\n\r\nabc")


async def test_a_header_with_a_line_break_is_never_written():
    async def split(request, reply):
        reply.start(200, [(b"x-a", b"1\r\nx-b: 2")])
        reply.end()

    async with listening(gateway(("GET", "/", split))) as port:
        answer = await exchange(port, GET + b"connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"x-b: 2" not in answer


async def test_a_connection_whose_request_does_not_arrive_is_closed():
    expected = {
        b"": [],
        b"\r\n": [],
        b"POST / HT": [b"408"],
        POST + b"x-half: ": [b"408"],
        POST + b"content-length: 9\r\n\r\nabc": [b"408"],
        GET + b"\r\n" + b"\r\n": [b"200"],
        GET + b"\r\n" + POST: [b"200", b"408"],
        b"PUT /early HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc": [b"404"],
    }
    async with listening(served(), idle_s=0.25) as port:
        answers = await asyncio.gather(*(exchange(port, sent) for sent in expected))
    got = [[part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] for answer in answers]
    assert dict(zip(expected, got, strict=True)) == expected


async def test_a_request_that_does_not_arrive_is_told_so_in_json_and_counted():
    counts = Counts()
    app = gateway(("POST", "/", brackets), counts=counts)
    async with listening(app, idle_s=1) as port:
        answers = await asyncio.gather(
            exchange(port, b"POST / HT"), exchange(port, POST + b"content-length: 9\r\n\r\nabc")
        )
    codes = [json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] for answer in answers]
    assert codes == ["request_timeout", "request_body_stalled"]
    assert sorted(counts.responses) == [("root", 408), ("unknown", 408)]


async def test_a_long_answer_is_not_cut_by_half_a_request_behind_it():
    async def slow(request, reply):
        # Longer than a connection may be idle.
        await asyncio.sleep(0.4)
        await brackets(request, reply)

    async with listening(gateway(("GET", "/", slow)), idle_s=0.25) as port:
        answer = await exchange(port, GET + b"\r\nGET / HT")
    assert b"\r\n\r\n<>" in answer


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
    async with listening(served()) as port:
        assert (await exchange(port, head)).startswith(b"HTTP/1.1 431 ")


async def test_a_header_without_an_end_is_refused_before_it_is_complete():
    async with listening(served()) as port:
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
    async with listening(served()) as port:
        assert (await exchange(port, head)).endswith(b"<>")


@pytest.mark.parametrize("is_closing", [False, True])
async def test_the_clock_of_a_connection_runs_only_while_the_client_is_waited_for(is_closing):
    free = asyncio.Event()

    async def slow(request, reply):
        await free.wait()
        await brackets(request, reply)

    app = gateway(("GET", "/", slow))
    connection, transport = connected(app)
    connection.data_received(GET + b"\r\n")
    await asyncio.sleep(0)
    for _ in range(3 * TICKS_OF_IDLE):
        connection.tick()
    assert not transport.is_closing()
    free.set()
    await idle(app)
    if is_closing:
        connection.close()
    for _ in range(TICKS_OF_IDLE):
        connection.tick()
    assert transport.is_closing() == is_closing
    connection.tick()
    assert transport.is_closing()
    # A closed connection has waited for its client long enough: what it did not read is dropped.
    assert transport.is_aborted == is_closing


@pytest.mark.timeout(20)
async def test_the_connection_of_a_client_that_does_not_read_is_cut_and_stopping_does_not_wait_for_it():
    async def flood(request, reply):
        reply.start(200, [])
        while True:
            reply.write(b"a" * 100_000)
            await asyncio.sleep(0)

    counts = Counts()
    app = gateway(("GET", "/", flood), counts=counts, max_held_bytes=1_000_000)
    # Stopping gives open connections longer than this test may take.
    async with listening(app, grace_s=3600) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GET + b"\r\n")
        await reader.readexactly(1)
        await counts.changed.wait()
        assert counts.slow == 1
    writer.transport.abort()


@pytest.mark.timeout(20)
async def test_a_client_that_never_reads_the_end_of_its_answer_is_cut():
    async def long(request, reply):
        reply.start(200, [])
        for _ in range(200):
            reply.write(b"a" * 100_000)
        reply.end()

    counts = Counts()
    app = gateway(("GET", "/", long), counts=counts, max_held_bytes=1_000_000_000, max_stall_s=0.2)
    async with listening(app, grace_s=3600) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GET + b"\r\n")
        await reader.readexactly(1)
        await counts.changed.wait()
        assert counts.slow == 1
    writer.transport.abort()


async def test_a_client_that_reads_late_gets_everything():
    async def long(request, reply):
        reply.start(200, [])
        for number in range(200):
            reply.write(b"%05d" % number * 20_000)
        reply.end(b"end")

    app = gateway(("GET", "/", long), max_held_bytes=1_000_000_000)
    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"connection: close\r\n\r\n")
        await reader.readexactly(1)
        await asyncio.sleep(0)
        raw = await reader.read()
        writer.close()
    body, at = b"", raw.index(b"\r\n\r\n") + 4
    while size := int(raw[at : raw.index(b"\r\n", at)], 16):
        at = raw.index(b"\r\n", at) + 2
        body += raw[at : at + size]
        at += size + 2
    assert body == b"".join(b"%05d" % number * 20_000 for number in range(200)) + b"end"
