"""The text completion sinks: the old form of log-probabilities, whole and in chunks."""

import json

import pytest

from gateway.openai.completion_sinks import JsonCompletionSink, SseCompletionSink
from gateway.openai.legacy_logprobs import legacy_json, legacy_lists
from gateway.openai.sinks import StreamForm
from smg.errors import EngineError
from smg.parsers.events import Content
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg_proto.common.v1 import common_pb2
from tests.token_rows import token_rows

HEAD = AnswerHead("cmpl-1", 1700000000, "m", "grpc://w:1", UsageCounter(prompt_tokens=5, completion_tokens=2))


class Page:
    """A reply that remembers what was written."""

    def __init__(self):
        self.is_started = False
        self.data = b""

    def start(self, status, headers):
        self.is_started, self.status = True, status

    def write(self, data):
        self.data += data

    def end(self, data=b""):
        self.data += data

    def events(self):
        return [json.loads(frame.removeprefix("data: ")) for frame in self.data.decode().split("\n\n")[:-2]]


def no_headers(_):
    return []


def token(text, logprob, *, token_id, offset=0, top=()):
    """An entry; text may be bytes that are no characters. None as log-probability: a prompt's first token."""
    data = text.encode() if isinstance(text, str) else text
    entry = common_pb2.TokenLogprob(
        token=data.decode("utf-8", "replace"), bytes=data, token_id=token_id, text_offset=offset
    )
    if logprob is not None:
        entry.logprob = logprob
    for other, number, lower in top:
        data = other.encode() if isinstance(other, str) else other
        entry.top_logprobs.add(
            token=data.decode("utf-8", "replace"), bytes=data, token_id=number, logprob=lower
        )
    return entry


def legacy_logprobs(entries):
    """The object that is written, read again."""
    return json.loads(b"".join(legacy_json([legacy_lists(token_rows(*entries))])))


def test_four_lists_stand_in_step():
    entries = [
        token("He", -0.5, token_id=1, top=[("He", 1, -0.5), ("A", 2, -1.0)]),
        token("llo", -0.25, token_id=3, offset=2, top=[("llo", 3, -0.25), ("y", 4, -2.0)]),
    ]
    assert legacy_logprobs(entries) == {
        "tokens": ["He", "llo"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{"He": -0.5, "A": -1.0}, {"llo": -0.25, "y": -2.0}],
        "text_offset": [0, 2],
    }


def test_the_first_token_of_a_prompt_has_neither_a_number_nor_likely_ones():
    told = legacy_logprobs([token("He", None, token_id=1), token("y", -1.0, token_id=2, offset=2)])
    assert told["token_logprobs"] == [None, -1.0]
    assert told["top_logprobs"] == [None, {"y": -1.0}]


def test_the_chosen_token_is_among_the_likely_ones_even_where_it_is_none_of_them():
    [top] = legacy_logprobs([token("x", -9.0, token_id=7, top=[("a", 1, -0.5)])])["top_logprobs"]
    assert top == {"a": -0.5, "x": -9.0}


def test_bytes_that_are_no_characters_are_told_apart():
    entry = token(b"\xe2\x82", -1.0, token_id=1, top=[(b"\xe2\x82", 1, -1.0), (b"\xe2\x83", 2, -2.0)])
    told = legacy_logprobs([entry])
    assert told["tokens"] == ["bytes:\\xe2\\x82"]
    assert told["top_logprobs"] == [{"bytes:\\xe2\\x82": -1.0, "bytes:\\xe2\\x83": -2.0}]


def test_a_token_that_is_the_replacement_character_stays_itself():
    assert legacy_logprobs([token("\ufffd", -1.0, token_id=1)])["tokens"] == ["\ufffd"]


def test_of_two_tokens_with_one_text_none_is_lost():
    [top] = legacy_logprobs([token("a", -1.0, token_id=1, top=[("a", 1, -1.0), ("a", 9, -2.0)])])[
        "top_logprobs"
    ]
    assert top == {"a": -1.0, "token_id:9": -2.0}


def test_chunks_carry_the_log_probabilities_of_their_tokens_and_the_end_has_none():
    page = Page()
    sink = SseCompletionSink(page, no_headers, StreamForm(), logprobs=True)
    sink.open(HEAD)
    sink.pieces(0, [Content("He")], token_rows(token("He", -0.5, token_id=1)))
    sink.pieces(0, [], token_rows(token("", -0.75, token_id=2, offset=2)))
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    sink.flush()
    choices = [event["choices"][0] for event in page.events()]
    assert [choice["text"] for choice in choices] == ["He", "", ""]
    assert [choice["logprobs"] and choice["logprobs"]["text_offset"] for choice in choices] == [
        [0],
        [2],
        None,
    ]
    assert choices[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        (False, None),
        (True, {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}),
    ],
    ids=["not asked for", "asked for"],
)
def test_an_answer_without_tokens_has_log_probabilities_only_if_asked_for(logprobs, expected):
    page = Page()
    sink = JsonCompletionSink(page, no_headers, logprobs=logprobs)
    sink.open(HEAD)
    sink.finish(0, ChoiceFinish("length"))
    sink.close()
    [choice] = json.loads(page.data)["choices"]
    assert choice.pop("logprobs", None) == expected
    assert choice == {"text": "", "index": 0, "finish_reason": "length"}


def test_chunks_never_carry_running_usage():
    page = Page()
    sink = SseCompletionSink(page, no_headers, StreamForm(usage=True, running_usage=True), logprobs=False)
    assert sink.accepts_fragments
    sink.open(HEAD)
    sink.fragment(0, b"He")
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    sink.flush()
    assert ["usage" in event for event in page.events()] == [False, False, True]


def test_a_stream_that_fails_says_so_in_a_kind_of_its_own():
    page = Page()
    sink = SseCompletionSink(page, no_headers, StreamForm(), logprobs=False)
    sink.open(HEAD)
    sink.fragment(0, b"He")
    sink.fail(EngineError("late", engine_code=13))
    assert page.events()[-1] == {"error": {"message": "late", "type": "stream_error"}}


async def test_an_answer_of_megabytes_is_put_together_off_the_event_loop():
    page = Page()
    sink = JsonCompletionSink(page, no_headers, logprobs=True)
    sink.open(HEAD)
    text = "x" * 200_000
    for index in (1, 0):
        sink.pieces(index, [Content(text)], token_rows(token(f"He{index}", -0.5, token_id=1)))
        sink.pieces(index, [Content("\0")], token_rows(token("llo", -0.25, token_id=2, offset=2)))
        sink.finish(index, ChoiceFinish("stop"))
    sink.close()
    assert not page.is_started
    await sink.written()
    choices = json.loads(page.data)["choices"]
    assert [choice["logprobs"]["tokens"] for choice in choices] == [["He0", "llo"], ["He1", "llo"]]
    assert [choice["text"] for choice in choices] == [text + "\0"] * 2


async def test_a_short_answer_is_written_when_it_is_closed():
    page = Page()
    sink = JsonCompletionSink(page, no_headers, logprobs=False)
    sink.open(HEAD)
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    written = page.data
    await sink.written()
    assert page.data == written != b""


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_lists_in_several_parts_are_what_they_are_in_one(cut):
    entries = [token("a", None, token_id=1), token("b", -1.0, token_id=2), token("c", -2.0, token_id=3)]
    parts = [legacy_lists(token_rows(*part)) for part in (entries[:cut], entries[cut:]) if part]
    assert json.loads(b"".join(legacy_json(parts))) == legacy_logprobs(entries)
