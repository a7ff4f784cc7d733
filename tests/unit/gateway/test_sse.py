"""Frames that every reader reads, and KeepAlive: a comment after so much silence, none while text flows."""

import json

from gateway.sse import PING, KeepAlive, frame


class Stream:
    """A reply that remembers."""

    def __init__(self):
        self.idle_ticks = 0
        self.is_started = False
        self.written = []

    def start(self):
        self.is_started = True

    def write(self, data):
        self.idle_ticks = 0
        self.written.append(data)


def test_silence_is_broken_by_a_comment_again_and_again():
    stream, watch = Stream(), KeepAlive(3, tick_s=1)
    watch.add(stream, stream.start)
    for _ in range(7):
        watch.tick()
    assert stream.written == [PING, PING]
    assert stream.is_started


def test_a_stream_with_traffic_gets_no_comment():
    stream, watch = Stream(), KeepAlive(2, tick_s=1)
    watch.add(stream, stream.start)
    for _ in range(5):
        watch.tick()
        stream.write(b"text")
    assert PING not in stream.written


def test_a_discarded_stream_gets_no_comment():
    stream, watch = Stream(), KeepAlive(1, tick_s=1)
    watch.add(stream, stream.start)
    watch.discard(stream)
    watch.discard(stream)
    watch.tick()
    assert stream.written == []


async def test_zero_switches_it_off():
    stream, watch = Stream(), KeepAlive(0)
    watch.add(stream, stream.start)
    watch.tick()
    await watch.run()
    assert stream.written == []


def test_characters_that_readers_may_take_for_line_ends_are_escaped():
    text = "a\u2028b\u2029c\u0085d\u2027e é"
    made = frame(json.dumps(text, ensure_ascii=False).encode())
    assert len(made.decode().splitlines()) == 2
    assert json.loads(made.removeprefix(b"data: ")) == text
