"""EdgeReply: what is written leaves in messages, in order; what cannot leave is merged, then the client is dropped."""

import asyncio

import pytest

from gateway.edge.reply import FULL_BYTES, MESSAGE_BYTES, EdgeReply


def new_reply(max_held_bytes=1000, on_drop=lambda: None, *, takes_body=True):
    reply = EdgeReply(max_held_bytes, on_drop, takes_body=takes_body)
    reply.start(200, [(b"a", b"b")])
    return reply


async def rest(reply):
    """The messages that are left."""
    messages = []
    while data := await reply.something():
        messages.append(data)
    return messages


async def test_what_is_written_while_a_message_is_on_its_way_is_one_message():
    reply = new_reply()
    reply.write(b"one")
    assert await reply.something() == b"one"
    reply.write(b"two")
    reply.write(b"three")
    assert await reply.something() == b"twothree"
    reply.end(b"four")
    assert await rest(reply) == [b"four"]


async def test_it_waits_for_the_next_write():
    reply = new_reply()
    waiting = asyncio.ensure_future(reply.something())
    await asyncio.sleep(0)
    assert not waiting.done()
    reply.write(b"late")
    assert await waiting == b"late"


async def test_a_long_body_leaves_in_bounded_messages():
    body = bytes(range(256)) * (MESSAGE_BYTES // 128)
    reply = new_reply()
    reply.end(body)
    messages = await rest(reply)
    assert b"".join(messages) == body
    assert max(map(len, messages)) == MESSAGE_BYTES


async def test_nothing_follows_the_end():
    reply = new_reply()
    reply.end()
    reply.write(b"late")
    reply.end(b"later")
    assert await rest(reply) == []


async def test_an_answer_to_head_has_no_body():
    reply = new_reply(takes_body=False)
    reply.write(b"one")
    reply.end(b"two")
    assert await rest(reply) == []


async def test_a_client_that_stays_behind_the_bound_is_dropped():
    dropped = []
    reply = new_reply(10, lambda: dropped.append(True))
    reply.write(b"x" * 20)  # nothing is on its way: it is no fault of the client
    assert await reply.something() == b"x" * 20
    reply.write(b"y" * 10)
    assert not dropped
    reply.write(b"y")
    assert dropped == [True]
    assert reply.is_too_slow
    assert reply.is_dropped
    assert await rest(reply) == []


async def test_those_who_wait_for_a_slow_client_go_on_when_it_reads_or_is_given_up():
    told = []
    reply = new_reply(10 * FULL_BYTES)
    assert not reply.is_behind(lambda: told.append("never"))
    reply.write(b"x")
    await reply.something()
    reply.write(b"x" * FULL_BYTES)
    assert reply.is_behind(lambda: told.append("read"))
    await reply.something()
    assert told == ["read"]
    reply.write(b"x" * FULL_BYTES)
    assert reply.is_behind(lambda: told.append("given up"))
    reply.close()
    assert told == ["read", "given up"]


async def test_drained_waits_until_the_last_message_is_taken():
    reply = new_reply()
    await reply.drained(0)  # nothing is held
    reply.end(b"x")
    waiting = asyncio.ensure_future(reply.drained(60))
    await reply.something()
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await reply.something() == b""
    await waiting
    assert not reply.is_too_slow


async def test_a_client_that_never_reads_the_end_is_dropped():
    reply = new_reply()
    reply.write(b"x")
    await reply.something()
    reply.end(b"y")
    await reply.drained(0)
    assert reply.is_too_slow
    assert reply.is_dropped


def test_a_header_with_a_line_break_is_refused():
    with pytest.raises(ValueError, match="line break"):
        new_reply().start(200, [(b"a", b"b\r\nc: d")])
