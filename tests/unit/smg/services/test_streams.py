"""PieceBuffer and deliver: a slow client gets the same text in fewer pieces, or loses its own answer alone."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import DeadlineExceeded, EngineError
from smg.parsers.events import Content
from smg.pipelines.sinks import ChoiceFinish
from smg.services.streams import MERGED_BYTES, PieceBuffer, SlowReader, deliver
from smg_proto.common.v1 import common_pb2
from tests.token_rows import token_rows

MANY = 1 << 30
STOP = ChoiceFinish("stop")


def say(buffer, index, text, logprobs=()):
    """More content of a choice."""
    buffer.pieces(index, [Content(text)] if text else [], logprobs)


async def taken(buffer):
    pieces = []
    while (piece := await buffer.take()) is not None:
        pieces.append(piece)
    return pieces


def text_of(pieces, index):
    return "".join(text for piece in pieces if piece.index == index for text in piece.texts)


async def test_what_waits_for_the_reader_becomes_one_piece_a_choice():
    buffer = PieceBuffer(MANY)
    for number in range(5):
        say(buffer, 0, f"a{number}")
        say(buffer, 1, f"b{number}")
    buffer.close()
    pieces = await taken(buffer)
    assert [(piece.index, "".join(piece.texts)) for piece in pieces] == [(0, "a0a1a2a3a4"), (1, "b0b1b2b3b4")]


async def test_a_piece_that_was_taken_gets_nothing_more():
    buffer = PieceBuffer(MANY)
    say(buffer, 0, "one")
    first = await buffer.take()
    say(buffer, 0, "two")
    second = await buffer.take()
    assert (first.texts, second.texts) == (["one"], ["two"])
    assert (first.is_first, second.is_first) == (True, False)


async def test_the_end_of_a_choice_travels_with_text_that_still_waits():
    buffer = PieceBuffer(MANY)
    say(buffer, 0, "bye")
    buffer.finish(0, STOP)
    buffer.close()
    [piece] = await taken(buffer)
    assert (piece.texts, piece.finish) == (["bye"], STOP)


async def test_merging_stops_at_a_size_that_clients_accept():
    buffer = PieceBuffer(MANY)
    for _ in range(8):
        say(buffer, 0, "x" * (MERGED_BYTES // 2))
    buffer.close()
    pieces = await taken(buffer)
    assert len(pieces) == 4
    assert [piece.is_first for piece in pieces] == [True, False, False, False]


async def test_log_probabilities_stay_in_step_with_the_text():
    buffer = PieceBuffer(MANY)
    rows = [token_rows(common_pb2.TokenLogprob(token=word, logprob=-1.0)) for word in ("a", "b", "c")]
    say(buffer, 0, "a", rows[0])
    say(buffer, 0, "", rows[1])
    say(buffer, 0, "c", rows[2])
    buffer.close()
    [piece] = await taken(buffer)
    assert [entry.token for entry in piece.logprobs] == ["a", "b", "c"]
    assert piece.texts == ["a", "c"]


# What happens to a buffer: text of a choice, or the reader takes a piece (None).
EVENTS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 2), st.text(max_size=8))), max_size=60)


@given(EVENTS)
def test_merging_never_changes_the_text_of_a_choice(events):
    async def run():
        buffer = PieceBuffer(MANY)
        pieces = []
        for event in events:
            if event is not None:
                say(buffer, *event)
            elif buffer.held_bytes:
                pieces.append(await buffer.take())
        buffer.close()
        pieces += await taken(buffer)
        for index in range(3):
            sent = "".join(
                text for event in events if event is not None and event[0] == index for text in event[1:]
            )
            assert text_of(pieces, index) == sent
            firsts = [piece.is_first for piece in pieces if piece.index == index]
            assert firsts == [True, *[False] * (len(firsts) - 1)][: len(firsts)]
        assert buffer.held_bytes == 0

    asyncio.run(run())


async def test_an_error_comes_after_what_was_there_before_it():
    buffer = PieceBuffer(MANY)
    say(buffer, 0, "half")
    buffer.fail(EngineError("lost", engine_code=14))
    say(buffer, 0, "too late")
    assert (await buffer.take()).texts == ["half"]
    with pytest.raises(EngineError, match="lost"):
        await buffer.take()


async def test_beyond_the_bound_everything_is_dropped_and_told_once():
    buffer, told = PieceBuffer(1000), []
    buffer.call_on_overflow(lambda: told.append(buffer.held_bytes))
    for _ in range(100):
        say(buffer, 0, "x" * 50)
    assert told == [0]
    assert isinstance(buffer.overflow, SlowReader)
    with pytest.raises(SlowReader, match="more than 1000 bytes"):
        await buffer.take()


async def test_many_small_texts_count_with_what_they_cost():
    buffer = PieceBuffer(10_000)
    for _ in range(1000):
        say(buffer, 0, "x")
    assert buffer.overflow is not None


async def test_a_large_step_is_no_slowness_of_a_reader_that_waits():
    buffer = PieceBuffer(1000)
    reading = asyncio.create_task(buffer.take())
    await asyncio.sleep(0)
    say(buffer, 0, "x" * 5000)
    assert len((await reading).texts[0]) == 5000
    assert buffer.overflow is None


class Texts:
    """A message source whose messages are the pieces' texts."""

    def __init__(self, max_held_bytes=MANY):
        self.buffer = PieceBuffer(max_held_bytes)

    async def next_message(self):
        piece = await self.buffer.take()
        return None if piece is None else "".join(piece.texts)


async def test_messages_are_written_in_order_until_the_answer_ends():
    source, written = Texts(), []

    async def run():
        for word in ("a", "b", "c"):
            say(source.buffer, 0, word)
            await asyncio.sleep(0)
        source.buffer.close()

    async def write(message):
        written.append(message)

    await deliver(source, run, write, 1.0)
    assert "".join(written) == "abc"


async def test_an_error_before_any_text_is_raised_as_it_is():
    source = Texts()

    async def run():
        raise DeadlineExceeded("late")

    with pytest.raises(DeadlineExceeded, match="late"):
        await deliver(source, run, None, 1.0)


async def test_an_unexpected_exception_is_raised_as_it_is():
    source = Texts()

    async def run():
        raise ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError, match="bug"):
        await deliver(source, run, None, 1.0)


async def test_an_answer_that_ends_without_a_word_ends_the_call():
    source = Texts()

    async def run():
        say(source.buffer, 0, "a")

    written = []

    async def write(message):
        written.append(message)

    await deliver(source, run, write, 1.0)
    assert written == ["a"]


async def test_a_client_that_stops_reading_loses_its_answer_at_the_bound():
    source, ended = Texts(max_held_bytes=2000), []
    stuck = asyncio.Event()

    async def run():
        try:
            while True:
                say(source.buffer, 0, "x" * 100)
                await asyncio.sleep(0)
        finally:
            ended.append("aborted")

    async def write(_):
        await stuck.wait()

    with pytest.raises(SlowReader, match="2000 bytes"):
        await deliver(source, run, write, 60.0)
    assert ended == ["aborted"]


async def test_a_client_that_never_reads_the_end_is_given_up():
    source = Texts()

    async def run():
        say(source.buffer, 0, "x")
        source.buffer.close()

    async def write(_):
        await asyncio.Event().wait()

    with pytest.raises(SlowReader, match=r"within 0\.01 s"):
        await deliver(source, run, write, 0.01)


async def test_cancelling_the_call_cancels_the_answer():
    source, started, ended = Texts(), asyncio.Event(), []

    async def run():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("aborted")

    call = asyncio.create_task(deliver(source, run, None, 1.0))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended == ["aborted"]


async def test_a_write_that_fails_ends_the_answer():
    source, ended = Texts(), []

    async def run():
        say(source.buffer, 0, "x")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("aborted")

    async def write(_):
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        await deliver(source, run, write, 1.0)
    assert ended == ["aborted"]


async def test_who_asks_is_called_when_the_reader_comes_back_for_more():
    buffer, calls = PieceBuffer(MANY), []
    assert buffer.is_behind(lambda: calls.append("a"))
    say(buffer, 0, "one")
    await buffer.take()
    # The reader has it, and has not come back yet.
    assert buffer.is_behind(lambda: calls.append("b"))
    assert calls == []
    reader = asyncio.create_task(buffer.take())
    await asyncio.sleep(0)
    assert calls == ["a", "b"]
    assert not buffer.is_behind(lambda: calls.append("never"))
    say(buffer, 0, "two")
    assert (await reader).texts == ["two"]
    assert buffer.is_behind(lambda: calls.append("c"))
    buffer.close()
    assert calls == ["a", "b", "c"]
