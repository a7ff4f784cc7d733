"""The sinks of the typed services: what a pipeline pushes is what a client reads, whole or in pieces."""

import pytest

from smg.errors import EngineError, InternalError
from smg.parsers.events import Content
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg.profiles import BASELINE
from smg.services.sinks import ProtoChatSink, ProtoCompletionSink, usage_message
from smg.services.stream_sinks import ProtoChatStreamSink, ProtoCompletionStreamSink, StreamForm
from smg.services.streams import PieceBuffer
from smg_proto.chat.v1 import options_pb2
from smg_proto.common.v1 import common_pb2
from tests.token_rows import token_rows

COUNTS = UsageCounter(prompt_tokens=7, completion_tokens=3, cached_tokens=4)


def head(usage=COUNTS):
    return AnswerHead("chatcmpl-1", 1_700_000_000, "m", "grpc://w:1", usage)


def said(text):
    return [Content(text)] if text else []


def push_two_choices(sink):
    """Two choices whose text comes interleaved; the second ends first."""
    sink.open(head())
    sink.pieces(1, said("Good"), ())
    sink.pieces(0, said("Hel"), ())
    sink.pieces(0, said("lo"), ())
    sink.pieces(1, said("bye"), ())
    sink.finish(1, ChoiceFinish("stop", 2))
    sink.finish(0, ChoiceFinish("stop", "END"))
    sink.close()
    sink.flush()


def entry(token):
    return common_pb2.TokenLogprob(token=token, logprob=-0.5)


async def messages(sink):
    result = []
    while (message := await sink.next_message()) is not None:
        result.append(message.chunk)
    return result


def test_a_whole_chat_answer_has_every_choice_by_index():
    sink = ProtoChatSink(logprobs=False)
    push_two_choices(sink)
    answer = sink.response().completion
    assert (answer.id, answer.created, answer.model, answer.system_fingerprint) == (
        "chatcmpl-1",
        1_700_000_000,
        "m",
        "default",
    )
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices] == [
        (0, "Hello", "stop"),
        (1, "Goodbye", "stop"),
    ]
    assert [choice.matched_stop.WhichOneof("kind") for choice in answer.choices] == ["text", "token_id"]
    assert answer.usage == usage_message(COUNTS)
    assert not answer.choices[0].HasField("logprobs")


def test_a_whole_chat_answer_without_text_has_no_content():
    sink = ProtoChatSink(logprobs=True)
    sink.open(head())
    sink.finish(0, ChoiceFinish("length"))
    sink.close()
    [choice] = sink.response().completion.choices
    assert choice.HasField("message")
    assert not choice.message.HasField("content")
    assert choice.HasField("logprobs")
    assert not choice.HasField("matched_stop")


def test_log_probabilities_are_collected_in_order():
    sink = ProtoChatSink(logprobs=True)
    sink.open(head())
    sink.pieces(0, said("a"), token_rows(entry("a")))
    sink.pieces(0, said("bc"), token_rows(entry("b"), entry("c")))
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    assert [each.token for each in sink.response().completion.choices[0].logprobs.content] == ["a", "b", "c"]


def test_a_whole_completion_has_every_choice_by_index():
    sink = ProtoCompletionSink(logprobs=False)
    push_two_choices(sink)
    answer = sink.response().completion
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "Hello"), (1, "Goodbye")]
    assert answer.choices[1].matched_stop.token_id == 2
    assert answer.usage.prompt_tokens == 7


@pytest.mark.parametrize("make", [ProtoChatSink, ProtoCompletionSink])
def test_a_failed_answer_raises_its_error(make):
    sink = make(logprobs=False)
    sink.open(head())
    sink.pieces(0, said("half"), ())
    sink.fail(EngineError("the worker is lost", engine_code=14))
    with pytest.raises(EngineError, match="lost"):
        sink.response()


def test_an_answer_that_was_not_closed_is_not_passed_off_as_whole():
    sink = ProtoCompletionSink(logprobs=False)
    sink.open(head())
    sink.pieces(0, said("half"), ())
    with pytest.raises(InternalError):
        sink.response()


def test_drafted_tokens_are_counted_only_where_an_engine_drafts():
    assert not usage_message(COUNTS).HasField("accepted_prediction_tokens")
    drafted = usage_message(UsageCounter(draft_tokens=10, accepted_tokens=7))
    assert (drafted.accepted_prediction_tokens, drafted.rejected_prediction_tokens) == (7, 3)


async def test_the_first_chunk_of_each_choice_names_the_role_and_no_other_does():
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm())
    sink.open(head())
    roles = []
    for word in ("a", "b", "c"):
        for index in (0, 1):
            sink.pieces(index, [Content(word)], ())
        for _ in range(2):
            choice = (await sink.next_message()).chunk.choices[0]
            roles.append((choice.index, choice.delta.role))
    assert roles == [(0, "assistant"), (1, "assistant"), (0, ""), (1, ""), (0, ""), (1, "")]


async def test_a_choice_without_text_still_opens_with_its_role():
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm())
    sink.open(head())
    sink.finish(0, ChoiceFinish("length"))
    sink.close()
    [chunk] = await messages(sink)
    assert (chunk.choices[0].delta.role, chunk.choices[0].finish_reason) == ("assistant", "length")
    assert not chunk.choices[0].delta.HasField("content")


@pytest.mark.parametrize("make", [ProtoChatStreamSink, ProtoCompletionStreamSink])
async def test_a_stream_says_what_the_whole_answer_says(make):
    whole = (
        ProtoChatSink(logprobs=False) if make is ProtoChatStreamSink else ProtoCompletionSink(logprobs=False)
    )
    push_two_choices(whole)
    stream = make(PieceBuffer(1 << 20), StreamForm(usage=True))
    push_two_choices(stream)
    chunks = await messages(stream)
    answer = whole.response().completion
    for choice in answer.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        if make is ProtoChatStreamSink:
            assert "".join(part.delta.content for part in parts) == choice.message.content
        else:
            assert "".join(part.text for part in parts) == choice.text
        assert [part.HasField("finish_reason") for part in parts] == [*[False] * (len(parts) - 1), True]
        assert (parts[-1].finish_reason, parts[-1].matched_stop) == (
            choice.finish_reason,
            choice.matched_stop,
        )
    assert {(chunk.id, chunk.created, chunk.model, chunk.system_fingerprint) for chunk in chunks} == {
        (answer.id, answer.created, answer.model, answer.system_fingerprint)
    }
    assert (len(chunks[-1].choices), chunks[-1].usage) == (0, answer.usage)


async def test_usage_comes_in_a_last_chunk_without_choices_only_if_asked_for():
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm())
    push_two_choices(sink)
    assert not any(chunk.HasField("usage") for chunk in await messages(sink))
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm(usage=True))
    push_two_choices(sink)
    assert [chunk.HasField("usage") for chunk in await messages(sink)] == [False, False, True]


async def test_running_usage_is_in_every_chunk_and_never_goes_back():
    usage = UsageCounter(prompt_tokens=5)
    sink = ProtoCompletionStreamSink(PieceBuffer(1 << 20), StreamForm(usage=True, running_usage=True))
    sink.open(head(usage))
    counts = []
    for word in ("a", "b"):
        usage.completion_tokens += 1
        sink.pieces(0, said(word), ())
        counts.append((await sink.next_message()).chunk.usage.completion_tokens)
    usage.completion_tokens += 1
    sink.finish(0, ChoiceFinish("stop"))
    sink.close()
    counts += [chunk.usage.completion_tokens for chunk in await messages(sink)]
    assert counts == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("include", "continuous", "form"),
    [
        (None, None, StreamForm()),
        (True, None, StreamForm(usage=True)),
        (True, True, StreamForm(usage=True, running_usage=True)),
        (None, True, StreamForm()),  # running usage needs include_usage
        (False, True, StreamForm()),
    ],
)
def test_what_a_stream_carries_follows_its_options(include, continuous, form):
    options = options_pb2.StreamOptions(include_usage=include, continuous_usage_stats=continuous)
    assert StreamForm.of(BASELINE.stream_usage(options)) == form


async def test_a_failed_stream_ends_with_its_error_after_the_text_and_without_usage():
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm(usage=True))
    sink.open(head())
    sink.pieces(0, said("half"), ())
    sink.fail(EngineError("lost", engine_code=14))
    assert (await sink.next_message()).chunk.choices[0].delta.content == "half"
    with pytest.raises(EngineError, match="lost"):
        await sink.next_message()


async def test_usage_rides_on_the_last_finish_where_the_model_has_it_so():
    sink = ProtoChatStreamSink(PieceBuffer(1 << 20), StreamForm(finish_usage=True))
    sink.open(head(UsageCounter(prompt_tokens=3, completion_tokens=2)))
    sink.finish(0, ChoiceFinish("stop"))
    first = (await sink.next_message()).chunk
    assert first.choices[0].finish_reason == "stop"
    assert not first.HasField("usage")
    sink.pieces(1, said("b"), ())
    sink.finish(1, ChoiceFinish("stop"))
    sink.close()
    chunks = await messages(sink)
    assert [chunk.HasField("usage") for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 2
