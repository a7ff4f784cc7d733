"""Connection: a call's messages and its end, however the server cuts its bytes."""

from __future__ import annotations

import asyncio

import hpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smg.errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
)
from smg.workers.http2 import frames
from smg.workers.http2.headers import HeaderReader
from tests.unit.smg.workers.http2_peer import Peer, call, connected, prefixed


def cut(data: bytes, sizes: list[int]):
    """The data in pieces of the sizes, over and over."""
    step = 0
    while data:
        size = sizes[step % len(sizes)]
        yield data[:size]
        data, step = data[size:], step + 1


async def test_a_request_is_one_write_of_headers_and_body():
    connection, transport = connected()
    call(connection, b"hello")
    (head, body) = transport.take_frames()
    assert head[:3] == (frames.HEADERS, frames.END_HEADERS, 1)
    fields = dict(hpack.Decoder().decode(head[3]))
    assert fields[":method"] == "POST"
    assert fields[":path"] == "/service/Method"
    assert fields[":authority"] == "host:1"
    assert (fields["te"], fields["content-type"]) == ("trailers", "application/grpc")
    assert body == (frames.DATA, frames.END_STREAM, 1, prefixed(b"hello"))


async def test_metadata_travels_as_headers():
    connection, transport = connected()
    connection.call("/s/M", b"", None, (("traceparent", "00-" + "ab" * 100),))
    fields = dict(hpack.Decoder().decode(transport.take_frames()[0][3]))
    assert fields["traceparent"] == "00-" + "ab" * 100


# Function-scoped fixtures are not used: hypothesis may run the whole body again.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    contents=st.lists(st.binary(max_size=60), max_size=6),
    data_sizes=st.lists(st.integers(1, 80), min_size=1, max_size=3),
    read_sizes=st.lists(st.integers(1, 120), min_size=1, max_size=3),
)
async def test_how_messages_are_cut_into_frames_and_reads_does_not_matter(contents, data_sizes, read_sizes):
    connection, _ = connected()
    (_, first), (_, second) = call(connection), call(connection)
    peer = Peer()
    stream = b"".join(prefixed(content) for content in contents)
    data = peer.begin(1) + peer.begin(3)
    for piece in cut(stream, data_sizes):
        for number in (1, 3):
            data += frames.frame(frames.DATA, 0, number, piece)
    data += peer.end(3) + peer.end(1)
    for piece in cut(data, read_sizes):
        connection.data_received(piece)
    assert first.messages == second.messages == contents
    assert (first.code, second.code) == (0, 0)


async def test_all_that_one_read_brings_comes_in_one_call():
    connection, _ = connected()
    _, receiver = call(connection)
    peer = Peer()
    connection.data_received(
        peer.begin(1) + peer.message(1, b"a") + peer.message(1, b"b", b"c") + peer.end(1)
    )
    assert receiver.batches == [3]
    assert receiver.code == 0


async def test_padded_frames_and_priorities_are_understood():
    connection, _ = connected()
    _, receiver = call(connection)
    peer = Peer()
    block = peer.block((":status", "200"))
    flags = frames.END_HEADERS | frames.PADDED | frames.HAS_PRIORITY
    connection.data_received(frames.frame(frames.HEADERS, flags, 1, b"\2" + bytes(5) + block + bytes(2)))
    connection.data_received(frames.frame(frames.DATA, frames.PADDED, 1, b"\3" + prefixed(b"x") + bytes(3)))
    connection.data_received(peer.end(1))
    assert receiver.messages == [b"x"]


async def test_a_header_block_may_come_in_several_frames():
    connection, _ = connected()
    _, receiver = call(connection)
    block = Peer().block(("grpc-status", "3"), ("grpc-message", "x" * 50))
    connection.data_received(
        frames.frame(frames.HEADERS, frames.END_STREAM, 1, block[:10])
        + frames.frame(frames.CONTINUATION, 0, 1, block[10:20])
        + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[20:])
    )
    assert receiver.statuses[0].message == "x" * 50


async def test_an_error_may_come_at_once_and_keeps_its_words():
    connection, _ = connected()
    _, receiver = call(connection)
    connection.data_received(Peer().end(1, INVALID_ARGUMENT, "temp%C3%A9rature %25 3"))
    (status,) = receiver.statuses
    assert (status.code, status.message) == (INVALID_ARGUMENT, "température % 3")


async def test_trailers_can_be_read():
    connection, _ = connected()
    _, receiver = call(connection)
    connection.data_received(
        Peer().headers(1, ("grpc-status", "9"), ("smg-constraint-failed", "engine"), end=True)
    )
    assert receiver.statuses[0].trailers["smg-constraint-failed"] == "engine"


@pytest.mark.parametrize(
    ("http_status", "code"),
    [("503", UNAVAILABLE), ("404", UNIMPLEMENTED), ("400", INTERNAL), ("418", UNKNOWN), ("200", UNKNOWN)],
)
async def test_an_answer_that_is_no_grpc_gets_the_code_that_grpc_gives_it(http_status, code):
    connection, _ = connected()
    _, receiver = call(connection)
    connection.data_received(Peer().headers(1, (":status", http_status), end=True))
    assert receiver.code == code


async def test_a_call_that_answers_with_an_http_error_and_a_body_ends_at_its_headers():
    connection, transport = connected()
    _, receiver = call(connection)
    transport.take_frames()
    connection.data_received(Peer().headers(1, (":status", "502")) + Peer.message(1, b"<html>"))
    assert receiver.messages == []
    assert receiver.code == UNAVAILABLE
    assert transport.take_frames() == [(frames.RST_STREAM, 0, 1, b"\0\0\0\x08")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frames.frame(frames.DATA, frames.END_STREAM, 1), UNKNOWN),  # no trailers
        (frames.frame(frames.DATA, 0, 1, b"\1" + bytes(4)), INTERNAL),  # compressed
        (frames.frame(frames.DATA, 0, 1, b"\0\x7f\xff\xff\xff"), RESOURCE_EXHAUSTED),  # too long
        (frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\5ab") + Peer().end(1), INTERNAL),  # cut off
        (frames.reset(1, frames.REFUSED_STREAM), UNAVAILABLE),
        (frames.reset(1, frames.CANCEL), CANCELLED),
        (frames.reset(1, frames.ENHANCE_YOUR_CALM), RESOURCE_EXHAUSTED),
        (frames.reset(1, 2), INTERNAL),
    ],
)
async def test_a_call_that_ends_badly_says_so_once(data, code):
    connection, _ = connected()
    (_, receiver), (_, other) = call(connection), call(connection)
    connection.data_received(Peer().begin(1) + data)
    assert receiver.code == code
    connection.data_received(Peer.message(1, b"late"))
    assert receiver.messages == []
    assert other.statuses == []


async def test_messages_before_a_failure_are_delivered_before_it():
    connection, _ = connected()
    _, receiver = call(connection)
    peer = Peer()
    connection.data_received(peer.begin(1) + peer.message(1, b"a") + peer.end(1, INTERNAL, "broke"))
    assert receiver.messages == [b"a"]
    assert receiver.code == INTERNAL


async def test_a_cancelled_call_is_reset_and_hears_nothing_more():
    connection, transport = connected()
    running, receiver = call(connection)
    transport.take_frames()
    connection.cancel(running)
    assert transport.take_frames() == [(frames.RST_STREAM, 0, 1, b"\0\0\0\x08")]
    connection.data_received(Peer().begin(1) + Peer.message(1, b"late") + Peer().end(1))
    assert (receiver.messages, receiver.statuses) == ([], [])
    connection.cancel(running)
    assert transport.take_frames() == []


async def test_a_receiver_may_cancel_another_that_has_something_in_the_same_read():
    connection, _ = connected()
    (_, first), (other, second) = call(connection), call(connection)
    first.on_messages = lambda _: connection.cancel(other)
    peer = Peer()
    connection.data_received(
        peer.begin(1)
        + peer.begin(3)
        + peer.message(1, b"a")
        + peer.message(3, b"b")
        + peer.end(3)
        + peer.end(1)
    )
    assert (second.messages, second.statuses) == ([], [])
    assert first.code == 0


async def test_a_receiver_that_raises_harms_no_other(caplog):
    connection, _ = connected()
    (_, broken), (_, other) = call(connection), call(connection)

    def raising(_):
        raise ZeroDivisionError("broken receiver")

    broken.on_messages = raising
    peer = Peer()
    connection.data_received(peer.begin(1) + peer.begin(3) + peer.message(1, b"a") + peer.message(3, b"b"))
    assert other.messages == [b"b"]
    assert "broken receiver" in caplog.text


async def test_ask_gives_messages_and_status_or_a_timeout():
    connection, transport = connected()
    asking = asyncio.ensure_future(connection.ask("/s/M", b"", 5))
    await asyncio.sleep(0)
    peer = Peer()
    connection.data_received(peer.begin(1) + peer.message(1, b"answer") + peer.end(1))
    messages, status = await asking
    assert (list(messages), status.code) == ([b"answer"], 0)
    transport.take_frames()
    _, status = await connection.ask("/s/M", b"", 0.001)
    assert status.code == DEADLINE_EXCEEDED
    assert transport.take_frames()[-1][:3] == (frames.RST_STREAM, 0, 3)


@pytest.mark.parametrize("table_size", [0, 4096])
def test_blocks_are_read_right_whether_the_peer_uses_a_table_or_not(table_size):
    encoder, reader = hpack.Encoder(), HeaderReader()
    encoder.header_table_size = table_size
    for round_ in range(4):
        for fields in ((("a", "1"), ("b", "2")), (("a", "1"),), (("c", str(round_)),)):
            assert reader.read(encoder.encode(fields)) == dict(fields)


def test_a_block_that_refers_to_the_table_means_what_the_table_holds_now():
    reader, newest = HeaderReader(), b"\xbe"
    reader.read(b"\x40\x01a\x011")
    assert reader.read(newest) == {"a": "1"}
    reader.read(b"\x40\x01b\x012")
    assert reader.read(newest) == {"b": "2"}


def test_a_block_known_from_before_the_table_was_opened_still_fills_it():
    reader, literal = HeaderReader(), b"\x40\x01a\x011"
    reader.read(b"\x20")
    assert reader.read(literal) == {"a": "1"}
    reader.read(b"\x3f\xe1\x1f")
    assert reader.read(literal) == {"a": "1"}
    assert reader.read(b"\xbe") == {"a": "1"}
