"""Connection: flow control, limits of the server, and its end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import UNAVAILABLE
from smg.workers.http2 import frames
from tests.examples import examples
from tests.unit.smg.workers.http2_peer import Peer, call, connected, goaway, prefixed, settings


def body_of(written) -> dict[int, bytes]:
    bodies: dict[int, bytes] = {}
    for kind, _, stream, payload in written:
        if kind == frames.DATA:
            bodies[stream] = bodies.get(stream, b"") + payload
    return bodies


def window(stream: int, size: int) -> bytes:
    return frames.frame(frames.WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


async def test_settings_and_pings_are_acknowledged():
    connection, transport = connected()
    connection.data_received(settings(MAX_FRAME_SIZE=20_000) + frames.frame(frames.PING, 0, 0, b"12345678"))
    assert transport.take_frames() == [
        (frames.SETTINGS, frames.ACK, 0, b""),
        (frames.PING, frames.ACK, 0, b"12345678"),
    ]
    connection.data_received(
        frames.frame(frames.SETTINGS, frames.ACK, 0) + frames.frame(frames.PING, frames.ACK, 0, bytes(8))
    )
    assert transport.take_frames() == []


async def test_a_long_body_waits_for_the_windows_of_stream_and_connection():
    connection, transport = connected()
    body = bytes(range(256)) * 400
    call(connection, body)
    whole = prefixed(body)
    sent = body_of(transport.take_frames())[1]
    assert sent == whole[: frames.DEFAULT_WINDOW]
    connection.data_received(window(1, 1_000_000))
    assert transport.take_frames() == []
    connection.data_received(window(0, 1000))
    sent += body_of(transport.take_frames())[1]
    assert len(sent) == frames.DEFAULT_WINDOW + 1000
    connection.data_received(window(0, 1_000_000))
    rest = transport.take_frames()
    assert sent + body_of(rest)[1] == whole
    assert [flags for _, flags, _, _ in rest][-1] == frames.END_STREAM


async def test_settings_that_come_in_mid_body_change_its_window_by_the_difference():
    connection, transport = connected()
    connection.data_received(window(0, 10_000_000))
    body = bytes(200_000)
    call(connection, body)
    assert len(body_of(transport.take_frames())[1]) == frames.DEFAULT_WINDOW
    connection.data_received(settings(INITIAL_WINDOW_SIZE=frames.DEFAULT_WINDOW + 1000))
    assert len(body_of(transport.take_frames())[1]) == 1000
    connection.data_received(settings(INITIAL_WINDOW_SIZE=0) + window(1, frames.DEFAULT_WINDOW + 1000))
    assert body_of(transport.take_frames()) == {}
    connection.data_received(window(1, 500))
    assert len(body_of(transport.take_frames())[1]) == 500


async def test_a_body_that_must_wait_does_not_hold_up_a_short_one():
    connection, transport = connected()
    connection.data_received(window(0, 10_000_000))
    call(connection, bytes(200_000))
    call(connection, b"short")
    assert body_of(transport.take_frames())[3] == prefixed(b"short")


@examples(10)
@given(
    lengths=st.lists(st.integers(0, 200_000), min_size=1, max_size=4),
    updates=st.lists(st.tuples(st.sampled_from([0, 1, 3, 5, 7]), st.integers(1, 300_000)), max_size=20),
    initial=st.integers(0, 300_000),
)
async def test_whatever_the_windows_do_bodies_arrive_whole_and_never_exceed_them(lengths, updates, initial):
    connection, transport = connected()
    connection.data_received(settings(INITIAL_WINDOW_SIZE=initial))
    transport.take_frames()
    bodies = {}
    for index, length in enumerate(lengths):
        bodies[2 * index + 1] = bytes([index]) * length
        call(connection, bodies[2 * index + 1])
    allowed = dict.fromkeys(bodies, initial) | {0: frames.DEFAULT_WINDOW}
    got = dict.fromkeys(bodies, b"")

    def check() -> None:
        for kind, _, stream, payload in transport.take_frames():
            if kind == frames.DATA:
                assert len(payload) <= frames.DEFAULT_FRAME_BYTES
                got[stream] += payload
                allowed[0] -= len(payload)
                allowed[stream] -= len(payload)
                assert allowed[0] >= 0
                assert allowed[stream] >= 0

    check()
    for stream, size in [*updates, *((number, 2_000_000) for number in (0, *bodies))]:
        connection.data_received(window(stream, size))
        if stream in allowed:
            allowed[stream] += size
        check()
    assert got == {stream: prefixed(body) for stream, body in bodies.items()}


async def test_calls_over_the_servers_limit_wait_for_their_turn():
    connection, transport = connected()
    connection.data_received(settings(MAX_CONCURRENT_STREAMS=1))
    transport.take_frames()
    (_, first), (second_call, second), (_, third) = call(connection), call(connection), call(connection)
    assert [stream for kind, _, stream, _ in transport.take_frames() if kind == frames.HEADERS] == [1]
    connection.cancel(second_call)
    connection.data_received(Peer().end(1))
    assert first.code == 0
    assert [stream for kind, _, stream, _ in transport.take_frames() if kind == frames.HEADERS] == [3]
    connection.data_received(Peer().end(3))
    assert third.code == 0
    assert second.statuses == []


async def test_the_window_of_the_connection_is_given_back_as_data_comes():
    connection, transport = connected()
    connection._acknowledge(2**30 - 1)
    assert transport.take_frames() == []
    connection._acknowledge(1)
    assert transport.take_frames() == [(frames.WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4, "big"))]


async def test_a_lost_connection_ends_every_call_once():
    connection, _ = connected()
    connection.data_received(settings(MAX_CONCURRENT_STREAMS=2))
    receivers = [call(connection)[1] for _ in range(4)]
    connection.connection_lost(ConnectionResetError("reset by peer"))
    assert [receiver.code for receiver in receivers] == [UNAVAILABLE] * 4
    assert "reset by peer" in receivers[0].statuses[0].message
    assert connection.is_closed
    assert "reset by peer" in connection.ending.result()


async def test_a_call_on_a_closed_connection_fails_from_the_loop_not_from_the_call():
    connection, transport = connected()
    connection.close("done")
    _, receiver = call(connection)
    assert receiver.statuses == []
    await asyncio.sleep(0)
    assert receiver.code == UNAVAILABLE
    assert transport.closed


async def test_after_goaway_taken_calls_end_well_and_others_fail():
    connection, transport = connected()
    (_, taken), (_, refused) = call(connection), call(connection)
    connection.data_received(goaway(1, b"going home"))
    assert refused.code == UNAVAILABLE
    assert "going home" in refused.statuses[0].message
    _, late = call(connection)
    await asyncio.sleep(0)
    assert late.code == UNAVAILABLE
    assert not transport.closed
    connection.data_received(Peer().begin(1) + Peer.message(1, b"answer") + Peer().end(1))
    assert (taken.messages, taken.code) == ([b"answer"], 0)
    assert transport.closed


@pytest.mark.parametrize(
    "data",
    [
        frames.frame(frames.DATA, 0, 1, bytes(16_385)),
        frames.frame(frames.HEADERS, 0, 1, b"\x88") + frames.frame(frames.DATA, 0, 1, b"x"),
        frames.frame(frames.HEADERS, 0, 1, b"\x88") + frames.frame(frames.CONTINUATION, 0, 3, b"\x88"),
        frames.frame(frames.HEADERS, 0, 1, bytes(16_000))
        + 5 * frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000)),
        frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff"),
        frames.frame(frames.CONTINUATION, 0, 1, b""),
        frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4)),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\x09x"),
        frames.frame(frames.DATA, frames.PADDED, 1, b""),
        frames.frame(frames.SETTINGS, 0, 0, bytes(5)),
        settings(INITIAL_WINDOW_SIZE=2**31),
        settings(MAX_FRAME_SIZE=100),
        window(0, 0),
        window(0, 2**31 - 1),
    ],
    ids=range(14),
)
async def test_a_server_that_breaks_the_protocol_loses_the_connection(data):
    connection, transport = connected()
    _, receiver = call(connection)
    connection.data_received(data)
    assert receiver.code == UNAVAILABLE
    assert transport.closed
    assert "broke HTTP/2" in connection.ending.result()


async def test_frames_of_unknown_kinds_are_ignored():
    connection, transport = connected()
    _, receiver = call(connection)
    connection.data_received(frames.frame(0x55, 0, 1, b"?") + frames.frame(frames.PRIORITY, 0, 1, bytes(5)))
    connection.data_received(Peer().end(1))
    assert receiver.code == 0
    assert not transport.closed


async def test_reads_gather_only_when_many_calls_run():
    connection, transport = connected(read_pause_s=0.001)
    for _ in range(15):
        call(connection)
    connection.data_received(Peer().begin(1))
    assert transport.paused == 0
    call(connection)
    connection.data_received(Peer().begin(3))
    assert transport.paused == 1
    resumed = asyncio.Event()
    transport.resume_reading = resumed.set
    await resumed.wait()
