"""The OpenAI sinks: what a client reads, and in how many writes it comes."""

import json

import pytest

from gateway.openai.chat_sinks import JsonChatSink, SseChatSink
from gateway.openai.completion_sinks import JsonCompletionSink, SseCompletionSink
from gateway.openai.sinks import StreamForm
from smg.errors import EngineError, InternalError
from smg.parsers.events import Content
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg_proto.common.v1 import common_pb2
from tests.token_rows import token_rows

USAGE = UsageCounter(prompt_tokens=5, completion_tokens=2, cached_tokens=4)
HEAD = AnswerHead("id-1", 1700000000, "m", "grpc://w:1", USAGE)


class Page:
    """A reply that remembers its writes."""

    def __init__(self):
        self.is_started = False
        self.idle_ticks = 0
        self.status = 0
        self.headers = []
        self.writes = []
        self.is_ended = False

    def start(self, status, headers):
        self.is_started, self.status, self.headers = True, status, list(headers)

    def write(self, data):
        self.writes.append(data)

    def end(self, data=b""):
        self.writes.append(data)
        self.is_ended = True

    def events(self):
        frames = b"".join(self.writes).decode().split("\n\n")[:-1]
        assert all(frame.startswith("data: ") for frame in frames)
        return [frame[6:] if frame == "data: [DONE]" else json.loads(frame[6:]) for frame in frames]

    def json(self):
        return json.loads(b"".join(self.writes))


def said(text):
    return [Content(text)] if text else []


def worker_header(url):
    return [(b"x-worker", url.encode())]


def chat_stream(form=StreamForm()):  # noqa: B008 - frozen
    page = Page()
    return page, SseChatSink(page, worker_header, form)


def test_a_chat_stream_is_role_text_finish_done():
    page, sink = chat_stream()
    sink.open(HEAD)
    sink.fragment(0, b"Hel")
    sink.fragment(0, b'lo \\"x\\"')
    sink.finish(0, ChoiceFinish("stop", 2))
    sink.close()
    sink.flush()
    events = page.events()
    assert [event["choices"][0]["delta"] for event in events[:-1]] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hel"},
        {"content": 'lo "x"'},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None, None, None, "stop"]
    assert all(
        (event["id"], event["object"], event["model"]) == ("id-1", "chat.completion.chunk", "m")
        for event in events[:-1]
    )
    assert events[-1] == "[DONE]"
    assert (b"x-worker", b"grpc://w:1") in page.headers
    assert page.is_ended


def test_role_and_first_text_leave_in_one_write_and_so_do_finish_usage_and_done():
    page, sink = chat_stream(StreamForm(usage=True))
    sink.open(HEAD)
    sink.fragment(0, b"a")
    sink.fragment(0, b"b")
    sink.pieces(0, said("c"), ())
    sink.finish(0, ChoiceFinish("length"))
    sink.close()
    sink.flush()
    assert len(page.writes) == 3
    usage = page.events()[-2]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 7
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 4


def test_running_usage_is_in_every_chunk_and_forbids_fragments():
    page, sink = chat_stream(StreamForm(usage=True, running_usage=True))
    assert not sink.accepts_fragments
    sink.open(HEAD)
    sink.pieces(0, said("a"), ())
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    sink.flush()
    assert all(event["usage"]["completion_tokens"] == 2 for event in page.events()[:-1])


def test_text_and_fragment_of_the_same_text_read_the_same():
    text = 'ü "quoted" \\ back\nline \u2028 \U0001f600'
    pages = []
    for by_fragment in (True, False):
        page, sink = chat_stream()
        sink.open(HEAD)
        if by_fragment:
            sink.fragment(0, json.dumps(text, ensure_ascii=False).encode()[1:-1])
        else:
            sink.pieces(0, said(text), ())
        sink.flush()
        pages.append(page.events())
    assert pages[0] == pages[1]


def test_choices_are_told_apart_and_each_opens_with_its_role():
    page, sink = chat_stream()
    sink.open(HEAD)
    sink.fragment(1, b"one")
    sink.fragment(0, b"zero")
    sink.flush()
    assert [
        (event["choices"][0]["index"], event["choices"][0]["delta"].get("role")) for event in page.events()
    ] == [
        (1, "assistant"),
        (1, None),
        (0, "assistant"),
        (0, None),
    ]


def test_a_failure_in_mid_stream_is_an_error_event_and_done():
    page, sink = chat_stream()
    sink.open(HEAD)
    sink.fragment(0, b"a")
    sink.fail(EngineError("lost", engine_code=14))
    assert page.events()[-2:] == [{"error": {"message": "lost", "type": "internal_error"}}, "[DONE]"]
    assert page.is_ended


def test_a_stream_begun_by_a_comment_keeps_its_headers():
    page, sink = chat_stream()
    sink.begin()
    headers = page.headers
    sink.open(HEAD)
    sink.fragment(0, b"a")
    assert page.headers == headers


LOGPROB = common_pb2.TokenLogprob(
    token="a",
    logprob=-0.5,
    bytes=b"a",
    token_id=1,
    top_logprobs=[common_pb2.TopLogprob(token="b", logprob=-1, bytes=b"b")],
)


def test_log_probabilities_ride_on_their_chunk():
    page, sink = chat_stream()
    sink.open(HEAD)
    sink.pieces(0, said("a"), token_rows(LOGPROB))
    sink.flush()
    assert page.events()[1]["choices"][0]["logprobs"]["content"] == [
        {
            "token": "a",
            "logprob": -0.5,
            "bytes": [97],
            "top_logprobs": [{"token": "b", "logprob": -1.0, "bytes": [98]}],
        }
    ]


def whole_chat(*, logprobs=False, texts=("Hel", "lo")):
    page = Page()
    sink = JsonChatSink(page, worker_header, logprobs=logprobs)
    sink.open(HEAD)
    for text in texts:
        sink.pieces(0, said(text), ())
    sink.finish(0, ChoiceFinish("stop", "END"))
    sink.flush()
    sink.close()
    return page


def test_a_whole_chat_answer_is_one_object_with_its_length():
    page = whole_chat()
    answer = page.json()
    assert answer["choices"][0] == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "Hello",
            "refusal": None,
            "annotations": [],
            "reasoning_content": None,
        },
        "logprobs": None,
        "finish_reason": "stop",
        "matched_stop": "END",
    }
    assert answer["usage"]["completion_tokens"] == 2
    assert (b"content-length", b"%d" % len(page.writes[0])) in page.headers


def test_an_answer_without_text_has_null_content():
    assert whole_chat(texts=()).json()["choices"][0]["message"]["content"] is None


def test_asked_for_log_probabilities_are_never_null():
    assert whole_chat(logprobs=True).json()["choices"][0]["logprobs"] == {"content": [], "refusal": None}


def test_a_failure_before_the_end_of_a_whole_answer_is_an_ordinary_error():
    page = Page()
    sink = JsonChatSink(page, worker_header, logprobs=False)
    sink.open(HEAD)
    sink.pieces(0, said("half"), ())
    sink.fail(InternalError("broken", code="x_failed"))
    assert page.status == 500
    assert page.json() == {
        "error": {"type": "Internal Server Error", "code": "x_failed", "message": "broken", "param": None}
    }


@pytest.mark.parametrize(
    ("counter", "details"),
    [
        (UsageCounter(reasoning_tokens=3), {"reasoning_tokens": 3}),
        (
            UsageCounter(draft_tokens=5, accepted_tokens=3),
            {"reasoning_tokens": 0, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2},
        ),
    ],
    ids=["plain", "speculative"],
)
def test_usage_tells_what_the_engine_counted(counter, details):
    page = Page()
    sink = JsonChatSink(page, worker_header, logprobs=False)
    sink.open(AnswerHead("i", 1, "m", "", counter))
    sink.close()
    assert page.json()["usage"]["completion_tokens_details"] == details


def test_text_completions_stream_and_collect_alike():
    page = Page()
    stream = SseCompletionSink(page, worker_header, StreamForm(usage=True), logprobs=False)
    whole_page = Page()
    whole = JsonCompletionSink(whole_page, worker_header, logprobs=False)
    for sink in (stream, whole):
        sink.open(HEAD)
        sink.pieces(0, said(" jumps"), ())
        sink.pieces(1, said(" runs"), ())
        sink.finish(1, ChoiceFinish("stop", 2))
        sink.finish(0, ChoiceFinish("length"))
        sink.close()
        sink.flush()
    texts = {}
    for event in page.events()[:-2]:
        choice = event["choices"][0]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    choices = whole_page.json()["choices"]
    assert texts == {0: " jumps", 1: " runs"} == {choice["index"]: choice["text"] for choice in choices}
    assert [choice["finish_reason"] for choice in choices] == ["length", "stop"]
    assert page.events()[-2]["usage"] == whole_page.json()["usage"]


def test_a_text_completion_streams_by_fragment():
    page = Page()
    sink = SseCompletionSink(page, worker_header, StreamForm(), logprobs=False)
    sink.open(HEAD)
    sink.fragment(0, b"a\\n")
    assert page.events()[0]["choices"] == [{"index": 0, "text": "a\n", "finish_reason": None}]


@pytest.mark.parametrize("asked", [True, False])
def test_usage_rides_on_the_finish_of_the_last_choice(asked):
    page, sink = chat_stream(StreamForm(usage=asked, finish_usage=True))
    assert sink.accepts_fragments
    sink.open(HEAD)
    sink.fragment(0, b"a")
    sink.pieces(1, said("b"), ())
    sink.finish(1, ChoiceFinish("stop"))
    sink.flush()
    sink.fragment(0, b"c")
    sink.finish(0, ChoiceFinish("length"))
    sink.close()
    sink.flush()
    *chunks, last, done = page.events()
    assert done == "[DONE]"
    assert (last["choices"][0]["index"], last["choices"][0]["finish_reason"]) == (0, "length")
    assert last["usage"]["completion_tokens"] == 2
    # A place for it, that is null, where it was asked for; none where it was not.
    assert [chunk.get("usage", "none") for chunk in chunks] == [None if asked else "none"] * len(chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks].count("stop") == 1
    assert all(chunk["choices"] for chunk in (*chunks, last))


def test_usage_of_an_answer_that_fails_before_its_end_is_not_told():
    page, sink = chat_stream(StreamForm(usage=True, finish_usage=True))
    sink.open(HEAD)
    sink.finish(0, ChoiceFinish("stop"))
    sink.flush()
    sink.fail(InternalError("lost"))
    events = page.events()
    assert [event.get("usage") for event in events[:-2]] == [None, None]
    assert "error" in events[-2]
