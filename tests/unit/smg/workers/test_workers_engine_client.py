"""Session and EngineClient: how a session opens, what ends it, and what a health check means."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

from smg.errors import UNIMPLEMENTED
from smg.workers.connected import ConnectionLost
from smg.workers.engine_client import EngineClient, Session
from smg.workers.options import WorkerOptions
from smg_proto.engine.v1 import engine_pb2
from tests.unit.smg.workers.http2_peer import Peer, connected

READY = engine_pb2.SessionEvent(ready=engine_pb2.Ready(instance_id="i", max_running=4)).SerializeToString()
STEP = engine_pb2.SessionEvent(sequence=[1], token=[2]).SerializeToString()


def opened():
    """A session, the events that it hands on, and its connection with the server's side."""
    connection, _ = connected()
    events: list = []
    session = Session(connection, events.append)
    peer = Peer()
    connection.data_received(peer.begin(1))
    return session, events, connection, peer


async def test_ready_opens_it_and_what_follows_is_handed_on():
    session, events, connection, peer = opened()
    connection.data_received(peer.message(1, READY, STEP, STEP))
    assert (await session.wait_ready()).max_running == 4
    assert [list(event.token) for event in events] == [[2], [2]]
    assert not session.ended.done()


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([STEP], "the first event of the session is not Ready"),
        ([READY, b"\xff\xff\xff"], "malformed event"),
    ],
)
async def test_an_engine_that_breaks_the_protocol_ends_it(messages, why):
    session, events, connection, peer = opened()
    connection.data_received(peer.message(1, *messages, STEP))
    assert why in session.ended.result()
    assert events == []


async def test_columns_that_do_not_match_end_it():
    session, _, connection, peer = opened()

    def mismatch(_):
        raise ValueError("zip() argument 2 is shorter than argument 1")

    session._on_event = mismatch
    connection.data_received(peer.message(1, READY, STEP))
    assert "malformed event: zip()" in session.ended.result()


async def test_a_fault_of_ours_ends_it_and_is_logged(caplog):
    session, _, connection, peer = opened()

    def broken(_):
        raise ZeroDivisionError("a fault of ours")

    session._on_event = broken
    connection.data_received(peer.message(1, READY, STEP, STEP))
    assert "a fault of ours" in session.ended.result()
    assert caplog.text.count("ZeroDivisionError: a fault of ours") == 1


async def test_the_engines_words_say_why_it_ended():
    session, _, connection, peer = opened()
    connection.data_received(peer.message(1, READY) + peer.end(1, 14, "the engine is shutting down"))
    assert session.ended.result() == "the engine is shutting down"


async def test_an_end_without_words_is_named():
    session, _, connection, peer = opened()
    connection.data_received(peer.message(1, READY) + peer.end(1))
    assert session.ended.result() == "the engine ended the session"


async def test_an_end_before_ready_is_told_to_who_waits():
    session, _, connection, peer = opened()
    waiting = asyncio.ensure_future(session.wait_ready())
    connection.data_received(peer.end(1, 14, "loading"))
    with pytest.raises(ConnectionLost, match="loading"):
        await waiting


async def health(*data) -> str:
    connection, _ = connected()
    client = EngineClient(connection, WorkerOptions(health_timeout_s=1))
    asking = asyncio.ensure_future(client.health())
    await asyncio.sleep(0)
    for piece in data:
        connection.data_received(piece)
    return await asking


@pytest.mark.parametrize(
    ("status", "why_not"),
    [
        ("SERVING", ""),
        ("NOT_SERVING", "health check says NOT_SERVING"),
        ("UNKNOWN", "health check says UNKNOWN"),
    ],
)
async def test_health_is_what_the_server_says(status, why_not):
    peer = Peer()
    answer = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    assert await health(peer.begin(1), peer.message(1, answer), peer.end(1)) == why_not


async def test_a_server_without_a_health_service_counts_as_well():
    assert await health(Peer().end(1, UNIMPLEMENTED, "what?")) == ""


async def test_a_failed_check_says_what_failed():
    assert await health(Peer().end(1, 5, "unknown service")) == "health check failed: unknown service"
