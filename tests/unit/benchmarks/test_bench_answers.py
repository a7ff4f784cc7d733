"""answers: a right answer passes, and every way of being wrong is told."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gateway.answers import WrongAnswer, check_answer, join_chunks

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


def event(**fields: Any) -> bytes:
    return b"data: " + orjson.dumps({"choices": [], **fields}) + b"\n\n"


def text(content: str, reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": content}, "finish_reason": reason}])


def usage(tokens: int) -> bytes:
    return event(usage={"prompt_tokens": 11, "completion_tokens": tokens})


DONE = b"data: [DONE]\n\n"
GOOD = (text("a"), text("b"), text("", "length"), usage(2), DONE)


def check(*events: bytes, tokens: int = 2, expected: str | None = "ab") -> Any:
    return check_answer(SSE_HEAD + chunked(*events), is_stream=True, tokens=tokens, text=expected)


def test_a_right_stream_is_read():
    answer = check(*GOOD)
    assert (answer.text, answer.content_events, answer.prompt_tokens) == ("ab", 2, 11)


def test_keepalive_comments_are_no_events():
    assert check(GOOD[0], b": keepalive\n\n", *GOOD[1:]).content_events == 2


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (GOOD[:-1], r"does not end with \[DONE\]"),
        ((*GOOD[:3], usage(1), DONE), "usage says 1 output tokens, 2 were asked for"),
        ((*GOOD[:3], DONE), "usage says None"),
        ((GOOD[0], *GOOD[2:]), "text is 'a'"),
        ((*GOOD[:2], text("", "stop"), *GOOD[3:]), "finish reasons are \\['stop'\\]"),
        ((*GOOD[:2], *GOOD[3:]), "finish reasons are \\[\\]"),
        ((GOOD[0], b'data: {"error": {}}\n\n', *GOOD[1:]), "event is no chunk"),
        ((GOOD[0], b"event: x\n\n", *GOOD[1:]), "event without data"),
    ],
)
def test_a_wrong_stream_is_told(events: tuple[bytes, ...], told: str):
    with pytest.raises(WrongAnswer, match=told):
        check(*events)


def test_an_error_status_is_told_with_its_body():
    raw = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 12\r\n\r\n{"error": 1}'
    with pytest.raises(WrongAnswer, match=r'status 503: \{"error": 1\}'):
        check_answer(raw, is_stream=True, tokens=1)


def unary(tokens: int, reason: str = "length", content: str | None = "ab") -> bytes:
    body = {
        "choices": [{"message": {"content": content}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens},
    }
    return b"HTTP/1.1 200 OK\r\n\r\n" + orjson.dumps(body)


def test_a_right_unary_answer_is_read():
    assert check_answer(unary(2), is_stream=False, tokens=2, text="ab").prompt_tokens == 3


@pytest.mark.parametrize("raw", [unary(3), unary(2, "stop"), unary(2, content=None), unary(2, content="x")])
def test_a_wrong_unary_answer_is_told(raw: bytes):
    with pytest.raises(WrongAnswer):
        check_answer(raw, is_stream=False, tokens=2, text="ab")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
def test_chunks_join_to_what_was_cut(pieces: list[bytes]):
    assert join_chunks(chunked(*pieces)) == b"".join(pieces)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_a_cut_body_is_never_taken_for_a_whole_one(pieces: list[bytes], data: st.DataObject):
    whole = chunked(*pieces)
    cut = data.draw(st.integers(0, len(whole) - 5))
    with pytest.raises(WrongAnswer):
        join_chunks(whole[:cut])


def test_bytes_before_an_answer_are_told():
    with pytest.raises(WrongAnswer, match="no HTTP answer: b'more"):
        check_answer(b"more" + unary(2), is_stream=False, tokens=2)
