"""SGLang's answers to calls of a listener: nothing twice, nothing lost, one end."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.errors import INTERNAL, UNAVAILABLE
from smg.workers.http2.headers import Status
from smg.workers.sglang.plain import plain_ids
from smg.workers.sglang.receiver import CallReceiver, Progress
from smg.workers.sglang.rows import output_rows, prompt_rows
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.workers.recorder import Recorder


class Answer:
    """A receiver with its listener."""

    def __init__(self, *, stream: bool = True, **fields) -> None:
        self.heard = Recorder()
        # For each end that was told: whether the engine still worked on it.
        self.over: list[bool] = []
        self.progress = Progress()
        request = work_pb2.Generate(sequence=5, stream=stream, **fields)
        self.receiver = CallReceiver(
            (request,), (self.heard,), self.progress, lambda _: self.over.append(not self.receiver.is_settled)
        )

    def take(self, *responses) -> None:
        self.receiver.on_messages([response.SerializeToString() for response in responses])

    def end(self, code: int = 0, message: str = "") -> None:
        self.receiver.on_end(Status(code, message, {}))

    @property
    def finished(self) -> work_pb2.Finished:
        return self.heard.calls[-1][3]

    @property
    def error(self):
        kind, error = self.heard.calls[-1]
        assert kind == "failed"
        return error


def chunk(*ids: int, total: int = 0, **fields):
    return pb.GenerateResponse(chunk=pb.GenerateStreamChunk(token_ids=ids, completion_tokens=total, **fields))


def complete(*ids: int, reason: str = "stop", **fields):
    return pb.GenerateResponse(complete=pb.GenerateComplete(output_ids=ids, finish_reason=reason, **fields))


def test_the_last_chunk_repeated_in_the_final_message_comes_once():
    answer = Answer()
    answer.take(chunk(1, 2, total=2))
    answer.take(chunk(3, total=3))
    answer.take(complete(3, completion_tokens=3))
    assert answer.heard.ids == [1, 2, 3]


def test_a_final_message_that_repeats_everything_adds_nothing():
    answer = Answer()
    answer.take(chunk(1, total=1), chunk(2, total=2), complete(1, 2, completion_tokens=2))
    assert answer.heard.ids == [1, 2]


def test_a_stream_that_is_answered_by_the_final_message_alone_loses_nothing():
    answer = Answer()
    answer.take(complete(1, 2, 3))
    assert answer.heard.ids == [1, 2, 3]


def test_a_last_chunk_and_the_end_in_one_read_are_one_step():
    answer = Answer()
    answer.take(chunk(1, total=1), complete(1))
    assert [call[0] for call in answer.heard.calls] == ["started", "step"]
    assert answer.heard.calls[-1][1] == [1]
    assert answer.finished is not None


def test_chunks_for_a_request_without_streaming_are_kept_for_the_end():
    answer = Answer(stream=False)
    answer.take(chunk(1, 2, total=2))
    answer.take(chunk(3, total=3))
    assert [call[0] for call in answer.heard.calls] == ["started"]
    answer.take(complete(3))
    assert answer.heard.calls[-1][1] == [1, 2, 3]


def test_an_empty_chunk_is_no_step():
    answer = Answer()
    answer.take(chunk())
    assert [call[0] for call in answer.heard.calls] == ["started"]


def test_all_counts_arrive():
    answer = Answer()
    answer.take(
        complete(
            1,
            prompt_tokens=9,
            completion_tokens=4,
            cached_tokens=6,
            reasoning_tokens=2,
            spec_draft_tokens=5,
            spec_accepted_tokens=3,
            matched_stop_str="END",
        )
    )
    assert answer.finished == work_pb2.Finished(
        sequence=5,
        reason=work_pb2.FINISH_REASON_STOP,
        matched_stop="END",
        prompt_tokens=9,
        completion_tokens=4,
        cached_tokens=6,
        reasoning_tokens=2,
        draft_tokens=5,
        accepted_tokens=3,
    )
    assert answer.heard.calls[0] == ("started", 9)


def test_a_matched_token_of_id_0_is_told_from_none():
    answer, without = Answer(), Answer()
    answer.take(complete(0, matched_token_id=0))
    without.take(complete(0))
    assert answer.finished.HasField("matched_token_id")
    assert not without.finished.HasField("matched_token_id")


@pytest.mark.parametrize(
    ("text", "reason", "kept"),
    [
        ("stop", work_pb2.FINISH_REASON_STOP, ""),
        ("length", work_pb2.FINISH_REASON_LENGTH, ""),
        ("abort", work_pb2.FINISH_REASON_ABORT, ""),
        ("banana", work_pb2.FINISH_REASON_STOP, "banana"),
    ],
)
def test_reasons(text, reason, kept):
    answer = Answer()
    answer.take(complete(1, reason=text))
    assert (answer.finished.reason, answer.finished.reason_text) == (reason, kept)


def test_the_reason_error_is_a_failure():
    answer = Answer()
    answer.take(chunk(1), complete(1, reason="error"))
    assert (answer.error.engine_code, answer.error.code) == (INTERNAL, "worker_stream_failed")


@pytest.mark.parametrize("at_once", [True, False])
def test_tokens_before_the_reason_error_are_told_however_they_were_read(at_once):
    answer = Answer()
    messages = chunk(1), chunk(2), complete(2, reason="error")
    for some in [messages] if at_once else [[message] for message in messages]:
        answer.take(*some)
    assert answer.heard.ids == [1, 2]
    assert answer.error.code == "worker_stream_failed"
    assert len(answer.over) == 1


def test_counts_of_a_continued_sequence_are_those_of_the_whole():
    answer = Answer(output_ids=b"\1\0\0\0\2\0\0\0")
    answer.take(chunk(3, total=1, prompt_tokens=12), complete(3, prompt_tokens=12, completion_tokens=1))
    assert answer.heard.calls[0] == ("started", 10)
    assert (answer.finished.prompt_tokens, answer.finished.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    ("before", "code"), [([], "no_responses_from_server"), ([chunk(1)], "worker_stream_failed")]
)
def test_a_stream_that_just_ends_is_a_failure(before, code):
    answer = Answer()
    if before:
        answer.take(*before)
    answer.end()
    assert (answer.error.engine_code, answer.error.code, answer.error.can_retry) == (INTERNAL, code, False)
    assert answer.over == [False]


@pytest.mark.parametrize(("code", "can_retry"), [(3, False), (4, True), (8, True), (13, False), (14, True)])
def test_a_status_becomes_an_error_with_its_words(code, can_retry):
    answer = Answer()
    answer.end(code, "the engine's own words")
    assert (answer.error.engine_code, answer.error.can_retry) == (code, can_retry)
    assert answer.error.message == "the engine's own words"
    assert answer.error.code == "start_generation_failed"


def test_the_end_of_the_call_after_the_sequences_end_is_no_news():
    answer = Answer()
    answer.take(complete(1))
    calls = list(answer.heard.calls)
    answer.end(UNAVAILABLE, "connection lost")
    assert answer.heard.calls == calls
    assert answer.over == [False]


@pytest.mark.parametrize("at_end", [False, True])
def test_a_listener_that_raises_is_told_once_and_its_sequence_is_stopped_if_it_runs(at_end):
    answer = Answer()

    def broken(*_):
        raise ZeroDivisionError("broken")

    answer.heard.on_step = broken
    answer.take(complete(1) if at_end else chunk(1))
    answer.end()
    assert [call[0] for call in answer.heard.calls] == ["started", "failed"]
    assert answer.over == [not at_end]


def test_a_message_that_cannot_be_read_fails_the_sequence():
    answer = Answer()
    answer.receiver.on_messages([b"\xff\xff"])
    assert [call[0] for call in answer.heard.calls] == ["failed"]


def test_output_rows_pair_what_was_asked_for_by_id():
    source = pb.OutputLogProbs(
        token_logprobs=[-0.5],
        token_ids=[7],
        top_logprobs=[pb.TopLogProbs(token_ids=[7, 8], values=[-0.5, -1])],
        token_ids_logprobs=[pb.TopLogProbs(token_ids=[20, 10], values=[-2, -1])],
    )
    (row,) = output_rows(source, [10, 20], wants_chosen=True)
    assert row == work_pb2.TokenLogprobs(
        logprob=-0.5, top_token=[7, 8], top_logprob=[-0.5, -1], asked_logprob=[-1, -2]
    )
    (row,) = output_rows(source, [10, 20], wants_chosen=False)
    assert row == work_pb2.TokenLogprobs(asked_logprob=[-1, -2])


@pytest.mark.parametrize(("start", "expected"), [(0, [None, -1.0, -2.0]), (4, [-1.0, -2.0])])
def test_prompt_rows_leave_out_the_position_that_was_only_asked_for_to_begin(start, expected):
    source = pb.InputLogProbs(
        token_logprobs=[
            pb.InputTokenLogProb(),
            pb.InputTokenLogProb(value=-1),
            pb.InputTokenLogProb(value=-2),
        ],
        top_logprobs=[pb.TopLogProbs(), *[pb.TopLogProbs(token_ids=[1], values=[-3])] * 2],
    )
    rows = prompt_rows(source, start, start + len(expected))
    assert [row.logprob if row.HasField("logprob") else None for row in rows] == expected
    assert list(rows[-1].top_token) == [1]


@given(
    tokens=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    reads=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_how_tokens_are_cut_into_chunks_and_reads_does_not_matter(tokens, sizes, reads):
    answer, messages, begin, step = Answer(), [], 0, 0
    while begin < len(tokens):
        size = sizes[step % len(sizes)]
        messages.append(chunk(*tokens[begin : begin + size], total=min(begin + size, len(tokens))))
        last = tokens[begin : begin + size]
        begin, step = begin + size, step + 1
    messages.append(complete(*last, completion_tokens=len(tokens)))
    step = 0
    while messages:
        size = reads[step % len(reads)]
        answer.take(*messages[:size])
        messages, step = messages[size:], step + 1
    assert answer.heard.ids == tokens
    assert answer.finished.completion_tokens == len(tokens)
    assert answer.progress.steps == step


@given(
    request_id=st.text(max_size=80),
    tokens=st.lists(st.integers(0, 2**32 - 1), max_size=30),
    counts=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
def test_ids_read_from_the_bytes_are_those_of_the_message(request_id, tokens, counts):
    message = pb.GenerateResponse(request_id=request_id)
    message.chunk.token_ids.extend(tokens)
    message.chunk.prompt_tokens, message.chunk.completion_tokens, message.chunk.index = counts
    assert plain_ids(message.SerializeToString()) in (None, tokens)


def test_usual_chunks_are_read_from_their_bytes():
    message = pb.GenerateResponse(request_id="chatcmpl-" + "0" * 24)
    message.chunk.MergeFrom(
        pb.GenerateStreamChunk(token_ids=[151_935, 0, 7], prompt_tokens=900, completion_tokens=3)
    )
    assert plain_ids(message.SerializeToString()) == [151_935, 0, 7]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_chunk_never_raise(data):
    plain_ids(data)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5), st.data())
def test_a_chunk_that_was_changed_is_read_as_protobuf_reads_it_or_not_at_all(tokens, data):
    message = bytearray(
        pb.GenerateResponse(
            request_id="r", chunk=pb.GenerateStreamChunk(token_ids=tokens)
        ).SerializeToString()
    )
    message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    found = plain_ids(bytes(message))
    if found is None:
        return
    try:
        parsed = pb.GenerateResponse.FromString(bytes(message))
    except DecodeError:
        return
    assert found == list(parsed.chunk.token_ids)


def test_the_final_message_is_no_chunk():
    assert plain_ids(complete(1, 2).SerializeToString()) is None
    assert (
        plain_ids(
            pb.GenerateResponse(
                request_id="r", complete=pb.GenerateComplete(output_ids=[1])
            ).SerializeToString()
        )
        is None
    )
