"""HttpReply: what is written is sent at once, in order, and a slow client is held back, then dropped."""

import asyncio

from gateway.reply import HttpReply


class Outlet:
    """A connection that is full while `is_full`, as one is whose client does not read."""

    def __init__(self):
        self.sent = []
        self.is_full = False
        self.keeps_alive = self.may_chunk = self.takes_body = True
        self.answers = []

    def send(self, data):
        self.sent.append(data)

    def answered(self, *, is_whole):
        self.answers.append(is_whole)


def reply_on(outlet, max_held_bytes=1000, on_drop=lambda: None):
    reply = HttpReply(outlet, max_held_bytes, on_drop)
    reply.start(200, [(b"a", b"b")])
    return reply


def fill(outlet, reply):
    outlet.is_full = True
    reply.pause()


def drain(outlet, reply):
    outlet.is_full = False
    reply.resume()


def text(outlet):
    """The text in the chunks that were sent, and how many there were."""
    raw = b"".join(outlet.sent)
    chunks, at = [], raw.index(b"\r\n\r\n") + 4
    while at < len(raw):
        size, _, _ = raw[at:].partition(b"\r\n")
        begin = at + len(size) + 2
        chunks.append(raw[begin : begin + int(size, 16)])
        at = begin + int(size, 16) + 2
    return chunks


def test_a_write_is_sent_when_it_returns_the_first_with_the_head():
    outlet = Outlet()
    reply = reply_on(outlet)
    assert outlet.sent == []
    reply.write(b"one")
    assert outlet.sent[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert outlet.sent[0].endswith(b"a: b\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
    reply.write(b"two")
    assert outlet.sent[1] == b"3\r\ntwo\r\n"
    assert outlet.answers == []
    reply.end(b"three")
    assert outlet.sent[2] == b"5\r\nthree\r\n0\r\n\r\n"
    assert outlet.answers == [True]


def test_an_empty_write_does_not_end_the_body():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.write(b"")
    reply.write(b"")
    reply.write(b"x")
    reply.end()
    assert text(outlet) == [b"x", b""]


async def test_text_for_a_slow_client_is_merged_into_one_write():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.write(b"0")
    fill(outlet, reply)
    for number in range(1, 6):
        reply.write(b"%d" % number)
    reply.end(b"!")
    assert text(outlet) == [b"0"]
    assert outlet.answers == []
    waiting = asyncio.create_task(reply.drained(5))
    await asyncio.sleep(0)
    assert not waiting.done()
    drain(outlet, reply)
    await waiting
    assert text(outlet) == [b"0", b"12345!", b""]
    assert len(outlet.sent) == 2
    assert outlet.answers == [True]


def test_a_client_that_reads_again_gets_every_write_at_once_again():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.write(b"0")
    fill(outlet, reply)
    drain(outlet, reply)
    reply.write(b"1")
    fill(outlet, reply)
    reply.write(b"2")
    drain(outlet, reply)
    reply.write(b"3")
    assert text(outlet) == [b"0", b"1", b"2", b"3"]


def test_the_head_may_be_held_back_as_well():
    outlet = Outlet()
    outlet.is_full = True
    reply = reply_on(outlet)
    reply.write(b"x")
    reply.write(b"y")
    assert outlet.sent == []
    drain(outlet, reply)
    reply.end()
    assert text(outlet) == [b"xy", b""]


def test_a_client_that_stays_behind_the_bound_is_dropped_once():
    outlet = Outlet()
    drops = []
    reply = reply_on(outlet, max_held_bytes=10, on_drop=lambda: drops.append(1))
    reply.write(b"x")
    fill(outlet, reply)
    for _ in range(20):
        reply.write(b"1234")
    assert drops == [1]
    assert reply.is_too_slow
    assert reply.is_dropped
    drain(outlet, reply)
    assert text(outlet) == [b"x"]


async def test_a_client_that_never_reads_the_end_is_dropped():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.write(b"x")
    fill(outlet, reply)
    reply.end(b"12345678")
    await reply.drained(0)
    assert reply.is_dropped
    assert reply.is_too_slow


async def test_a_client_that_leaves_while_held_back_is_waited_for_no_more():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.write(b"x")
    fill(outlet, reply)
    reply.end(b"12345678")
    asyncio.get_running_loop().call_soon(reply.close)
    await reply.drained(5)
    assert reply.is_dropped
    assert not reply.is_too_slow


def test_writes_after_the_end_are_dropped():
    outlet = Outlet()
    reply = reply_on(outlet)
    reply.end(b"end")
    reply.write(b"more")
    reply.end(b"more")
    assert text(outlet) == [b"end", b""]
    assert outlet.answers == [True]


def test_every_write_resets_the_idle_count():
    reply = reply_on(Outlet())
    reply.idle_ticks = 7
    reply.write(b"x")
    assert reply.idle_ticks == 0
    reply.idle_ticks = 7
    reply.write(b"x")
    assert reply.idle_ticks == 0


def test_a_declared_length_is_kept_or_the_answer_is_not_whole():
    for written, is_whole in (([b"ab", b"c"], True), ([b"ab"], False), ([b"abcd"], False)):
        outlet = Outlet()
        reply = HttpReply(outlet, 1000, lambda: None)
        reply.start(200, [(b"content-length", b"3")])
        for piece in written:
            reply.write(piece)
        reply.end()
        assert b"".join(outlet.sent).endswith(b"\r\n\r\n" + b"".join(written))
        assert outlet.answers == [is_whole]


def test_who_asks_while_the_socket_is_full_is_called_once_when_the_client_reads():
    outlet, calls = Outlet(), []
    reply = reply_on(outlet)
    assert not reply.is_behind(lambda: calls.append("never"))
    reply.write(b"0")
    fill(outlet, reply)
    assert reply.is_behind(lambda: calls.append("a"))
    assert reply.is_behind(lambda: calls.append("b"))
    assert calls == []
    drain(outlet, reply)
    drain(outlet, reply)
    assert calls == ["a", "b"]
    assert not reply.is_behind(lambda: calls.append("never"))


def test_who_waits_for_a_client_that_is_given_up_is_called_and_waits_no_more():
    outlet, calls = Outlet(), []
    reply = reply_on(outlet)
    fill(outlet, reply)
    assert reply.is_behind(lambda: calls.append("a"))
    reply.close()
    assert calls == ["a"]
    assert not reply.is_behind(lambda: calls.append("never"))


def test_a_body_of_megabytes_is_not_copied_behind_its_head():
    outlet = Outlet()
    reply = reply_on(outlet)
    body = b"x" * 1_000_000
    reply.start(200, [(b"content-length", b"1000000")])
    reply.end(body)
    assert outlet.sent[1] is body
    assert outlet.answers == [True]
