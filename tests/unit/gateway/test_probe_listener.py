"""ProbeListener: probes are answered from a thread, and a stuck event loop is told."""

import asyncio
import threading
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from gateway.probe_listener import ProbeListener
from gateway.status import LIVES, ProbeAnswer
from gateway.whole import TEXT
from smg.errors import PortTaken


def probes():
    return {"/liveness": LIVES, "/readiness": ProbeAnswer(503, TEXT, b"not yet")}


@pytest.fixture
def listener():
    with ProbeListener(probes, "127.0.0.1", 0) as running:
        yield running


def ask(listener, path):
    try:
        with urlopen(f"http://127.0.0.1:{listener.port}{path}", timeout=20) as response:
            return response.status, response.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def test_probes_are_answered_while_nobody_else_runs(listener):
    assert ask(listener, "/liveness") == (200, b"OK")
    assert ask(listener, "/readiness?verbose=1") == (503, b"not yet")
    status, body = ask(listener, "/v1/models")
    assert (status, b"/liveness" in body) == (404, True)


def test_an_event_loop_that_stays_away_is_told():
    with ProbeListener(probes, "127.0.0.1", 0, stuck_s=-1) as listener:
        status, body = ask(listener, "/liveness")
        assert (status, body.startswith(b"the event loop has been stuck for")) == (503, True)
        assert ask(listener, "/other")[0] == 404


async def test_the_answers_of_the_moment_are_left_again_and_again():
    answers = iter([b"one", b"two", b"two", b"two"])
    with ProbeListener(
        lambda: {"/health": ProbeAnswer(200, TEXT, next(answers, b"two"))}, "127.0.0.1", 0
    ) as made:
        assert (await asyncio.to_thread(ask, made, "/health"))[1] == b"one"
        following = asyncio.create_task(made.follow())
        await asyncio.sleep(0)
        assert (await asyncio.to_thread(ask, made, "/health"))[1] == b"two"
        following.cancel()


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"HEAD /liveness HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"POST /liveness HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /liveness\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /" + b"x" * 20_000, b"HTTP/1.1 400 Bad Request"),
        (b"", b""),
    ],
    ids=["head", "post", "nonsense", "old", "long", "nothing"],
)
async def test_what_is_no_probe_is_refused_and_harms_nothing(listener, sent, line):
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(sent)
    writer.write_eof()
    answer = await reader.read()
    assert answer.partition(b"\r\n")[0] == line
    writer.close()
    assert (await asyncio.to_thread(ask, listener, "/liveness"))[0] == 200


def test_a_port_that_is_taken_is_told_and_leaves_no_thread(listener):
    before = threading.active_count()
    with pytest.raises(PortTaken), ProbeListener(probes, "127.0.0.1", listener.port):
        pass
    assert threading.active_count() == before
