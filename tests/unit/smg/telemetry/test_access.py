"""AccessLog: every HTTP request leaves one line, whatever becomes of it."""

import asyncio
import logging

import pytest

from smg.telemetry.access import AccessLog


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "smg.access")
    return caplog


async def request(app, **scope) -> list[dict]:
    sent: list[dict] = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    full = {"type": "http", "method": "POST", "path": "/v1/x", "client": ("10.0.0.1", 5), **scope}
    await AccessLog(app)(full, receive, send)
    return sent


async def answering(scope, receive, send):
    start = {"type": "http.response.start", "status": 201, "headers": [(b"x-request-id", b"r-1")]}
    await send(start)
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})
    await send({"type": "http.response.body", "body": b"de"})


async def test_a_request_leaves_one_line(lines):
    sent = await request(answering)
    assert [message["type"] for message in sent].count("http.response.body") == 2
    (record,) = lines.records
    assert record.getMessage() == "POST /v1/x"
    assert (record.status, record.bytes, record.request_id, record.client) == (201, 5, "r-1", "10.0.0.1")
    assert record.seconds >= 0


async def test_a_client_that_leaves_is_logged_as_499(lines):
    async def left(scope, receive, send):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await request(left, client=None)
    assert lines.records[0].status == 499


async def test_the_query_is_not_logged_and_a_long_path_is_cut(lines):
    await request(answering, path="/" + "a" * 1000, query_string=b"token=private")
    assert "private" not in lines.text
    assert len(lines.records[0].getMessage()) < 250


async def test_other_scopes_pass_unlogged(lines):
    async def closing(scope, receive, send):
        await send({"type": "websocket.close"})

    assert await request(closing, type="websocket") == [{"type": "websocket.close"}]
    assert not lines.records
