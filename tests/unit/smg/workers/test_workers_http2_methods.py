"""Open calls, and methods that a coroutine awaits."""

from __future__ import annotations

import asyncio

import pytest

from smg.errors import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, EngineError
from smg.workers.http2 import frames
from smg.workers.http2.methods import ask, stream
from tests.unit.smg.workers.http2_peer import Peer, Receiver, connected, prefixed, settings


def sent(transport) -> bytes:
    return b"".join(payload for kind, _, _, payload in transport.take_frames() if kind == frames.DATA)


async def test_an_open_call_sends_messages_one_by_one_and_never_ends_its_side():
    connection, transport = connected()
    call = connection.open("/s/M", Receiver())
    connection.send(call, b"one")
    connection.send(call, b"two")
    written = transport.take_frames()
    assert [(kind, flags) for kind, flags, _, _ in written] == [
        (frames.HEADERS, frames.END_HEADERS),
        (frames.DATA, 0),
        (frames.DATA, 0),
    ]
    assert b"".join(payload for _, _, _, payload in written[1:]) == prefixed(b"one") + prefixed(b"two")


async def test_messages_of_an_open_call_keep_their_order_when_the_window_is_small():
    connection, transport = connected()
    connection.data_received(settings(INITIAL_WINDOW_SIZE=10))
    transport.take_frames()
    call = connection.open("/s/M", Receiver())
    messages = [bytes([index]) * 7 for index in range(5)]
    for message in messages:
        connection.send(call, message)
    got = sent(transport)
    assert len(got) == 10
    for _ in range(5):
        connection.data_received(frames.frame(frames.WINDOW_UPDATE, 0, call.stream, (10).to_bytes(4, "big")))
        got += sent(transport)
    assert got == b"".join(prefixed(message) for message in messages)


async def test_an_open_call_that_waits_for_a_stream_sends_when_it_gets_one():
    connection, transport = connected()
    connection.data_received(settings(MAX_CONCURRENT_STREAMS=0))
    transport.take_frames()
    call = connection.open("/s/M", Receiver())
    connection.send(call, b"one")
    connection.send(call, b"two")
    assert transport.take_frames() == []
    connection.data_received(settings(MAX_CONCURRENT_STREAMS=1))
    assert sent(transport) == prefixed(b"one") + prefixed(b"two")


async def test_sending_on_an_ended_call_is_ignored():
    connection, transport = connected()
    call = connection.open("/s/M", Receiver())
    connection.data_received(Peer().end(1))
    transport.take_frames()
    connection.send(call, b"late")
    assert transport.take_frames() == []


async def asked(connection, *data: bytes):
    """The outcome of a unary call that is answered with some bytes."""
    asking = asyncio.ensure_future(ask(connection, "/s/M", b"", 5))
    await asyncio.sleep(0)
    for piece in data:
        connection.data_received(piece)
    return await asking


async def test_ask_gives_the_answer():
    connection, _ = connected()
    peer = Peer()
    assert await asked(connection, peer.begin(1), peer.message(1, b"answer"), peer.end(1)) == b"answer"


async def test_ask_raises_the_status_with_its_words():
    connection, _ = connected()
    with pytest.raises(EngineError, match="no room") as caught:
        await asked(connection, Peer().end(1, RESOURCE_EXHAUSTED, "no room"))
    assert (caught.value.engine_code, caught.value.can_retry) == (RESOURCE_EXHAUSTED, True)


@pytest.mark.parametrize("count", [0, 2])
async def test_ask_wants_exactly_one_message(count):
    connection, _ = connected()
    peer = Peer()
    with pytest.raises(EngineError, match=f"answered with {count} messages") as caught:
        await asked(connection, peer.begin(1), peer.message(1, *[b"x"] * count), peer.end(1))
    assert caught.value.engine_code == INTERNAL


async def streamed(connection, *data: bytes, limit_bytes: int = 1000, timeout_s: float = 5) -> list[bytes]:
    async def collect():
        pieces = stream(connection, "/s/M", b"", timeout_s=timeout_s, limit_bytes=limit_bytes)
        return [piece async for piece in pieces]

    collecting = asyncio.ensure_future(collect())
    await asyncio.sleep(0)
    for piece in data:
        connection.data_received(piece)
    return await collecting


async def test_stream_yields_every_message():
    connection, _ = connected()
    peer = Peer()
    data = (peer.begin(1), peer.message(1, b"a", b"b"), peer.message(1, b"c"), peer.end(1))
    assert await streamed(connection, *data) == [b"a", b"b", b"c"]


async def test_stream_that_fails_late_raises_after_its_messages():
    connection, _ = connected()
    peer = Peer()
    with pytest.raises(EngineError, match="gone"):
        await streamed(connection, peer.begin(1), peer.message(1, b"a"), peer.end(1, UNAVAILABLE, "gone"))


async def test_stream_over_its_limit_is_cut_off_and_the_call_cancelled():
    connection, transport = connected()
    peer = Peer()
    with pytest.raises(EngineError, match="10 bytes allowed") as caught:
        await streamed(
            connection, peer.begin(1), peer.message(1, bytes(6), bytes(6), bytes(6)), limit_bytes=10
        )
    assert caught.value.engine_code == RESOURCE_EXHAUSTED
    assert transport.take_frames()[-1][0] == frames.RST_STREAM


async def test_stream_that_takes_too_long_says_so():
    connection, _ = connected()
    with pytest.raises(EngineError, match=r"longer than 0\.001 s") as caught:
        await streamed(connection, timeout_s=0.001)
    assert caught.value.engine_code == DEADLINE_EXCEEDED
