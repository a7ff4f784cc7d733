"""SGLang's answers to a call of several choices: each goes where it belongs, whatever their order and cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.errors import INTERNAL, InternalError
from smg.workers.http2.headers import Status
from smg.workers.sglang.receiver import CallReceiver, Progress
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.workers.recorder import Recorder


class Choices:
    """A receiver with the listeners of its choices, whose sequences are 0, 1, …"""

    def __init__(self, count: int = 2, *, stream: bool = True, **fields) -> None:
        self.heard = [Recorder() for _ in range(count)]
        self.over: list[tuple[int, bool]] = []
        requests = [work_pb2.Generate(sequence=number, stream=stream, **fields) for number in range(count)]
        self.receiver = CallReceiver(
            requests,
            self.heard,
            Progress(),
            lambda sequence: self.over.append((sequence, self.receiver.is_settled)),
        )

    def take(self, *responses) -> None:
        self.receiver.on_messages([response.SerializeToString() for response in responses])

    @property
    def ids(self) -> list[list[int]]:
        return [each.ids for each in self.heard]

    def error(self, choice: int):
        kind, error = self.heard[choice].calls[-1]
        assert kind == "failed"
        return error

    def finished(self, choice: int) -> work_pb2.Finished:
        return self.heard[choice].calls[-1][3]


def chunk(index: int, *ids: int, **fields):
    return pb.GenerateResponse(
        request_id="r", chunk=pb.GenerateStreamChunk(index=index, token_ids=ids, **fields)
    )


def complete(index: int, *ids: int, reason: str = "stop", **fields):
    return pb.GenerateResponse(
        complete=pb.GenerateComplete(index=index, output_ids=ids, finish_reason=reason, **fields)
    )


def test_what_one_read_brings_is_one_step_of_each_choice():
    answer = Choices()
    answer.take(chunk(1, 11), chunk(0, 1), chunk(1, 12))
    assert answer.ids == [[1], [11, 12]]
    assert [[call[0] for call in each.calls] for each in answer.heard] == [["started", "step"]] * 2


def test_whole_answers_that_all_say_index_0_are_taken_in_order():
    answer = Choices(3, stream=False)
    answer.take(complete(0, 1), complete(0, 2), complete(0, 3))
    assert answer.ids == [[1], [2], [3]]
    assert answer.over == [(0, False), (1, False), (2, True)]


def test_whole_answers_that_say_their_index_may_come_in_any_order():
    answer = Choices(3, stream=False)
    answer.take(complete(2, 3), complete(0, 1), complete(1, 2))
    assert answer.ids == [[1], [2], [3]]


def test_an_abandoned_choice_still_takes_its_own_answer():
    answer = Choices(2, stream=False)
    answer.receiver.abandon(0)
    answer.take(complete(0, 1), complete(0, 2))
    assert answer.ids == [[], [2]]
    assert answer.over == [(1, True)]


def test_one_final_message_too_many_is_ignored():
    for stream in (True, False):
        answer = Choices(stream=stream)
        answer.take(complete(0, 1), complete(1, 2), complete(0, 9), complete(1, 9))
        assert answer.ids == [[1], [2]]


def test_an_index_that_no_choice_has_fails_them_all_and_the_call_is_still_running():
    answer = Choices()
    answer.take(chunk(0, 1), chunk(2, 9))
    assert [type(answer.error(choice)) for choice in range(2)] == [InternalError] * 2
    assert answer.over == [(0, False), (1, False)]


@pytest.mark.parametrize("told", [2, 5], ids=["own count", "count of all choices"])
def test_output_tokens_are_counted_here(told):
    answer = Choices()
    answer.take(chunk(0, 1, 2), chunk(1, 11, 12, 13))
    answer.take(
        complete(0, 2, completion_tokens=told, reasoning_tokens=4), complete(1, 13, completion_tokens=told)
    )
    assert [answer.finished(choice).completion_tokens for choice in range(2)] == [2, 3]
    assert answer.finished(0).reasoning_tokens == 2


def test_a_stream_that_just_ends_fails_the_choices_that_have_not_ended():
    answer = Choices()
    answer.take(chunk(0, 1), complete(0, 1))
    answer.receiver.on_end(Status(0, "", {}))
    assert answer.finished(0) is not None
    assert (answer.error(1).engine_code, answer.error(1).code) == (INTERNAL, "worker_stream_failed")
    assert answer.over == [(0, False), (1, True)]


def test_a_stream_that_ends_without_anything_says_so_to_every_choice():
    answer = Choices(stream=False)
    answer.receiver.on_end(Status(0, "", {}))
    assert {answer.error(choice).code for choice in range(2)} == {"no_responses_from_server"}


def test_a_choice_that_is_given_up_hears_it_once():
    answer = Choices()
    answer.receiver.give_up(1, InternalError("lost"))
    answer.take(chunk(1, 11), chunk(0, 1))
    answer.receiver.on_end(Status(14, "gone", {}))
    assert [call[0] for call in answer.heard[1].calls] == ["failed"]
    assert answer.error(0).message == "gone"


def test_a_listener_that_abandons_its_own_choice_and_raises_is_not_told():
    answer = Choices()

    def leave_and_raise(*_):
        answer.receiver.abandon(0)
        raise ZeroDivisionError("broken")

    answer.heard[0].on_step = leave_and_raise
    answer.take(chunk(0, 1), chunk(1, 11))
    assert [call[0] for call in answer.heard[0].calls] == ["started"]
    assert answer.ids[1] == [11]


def test_a_listener_may_abandon_the_others_in_the_middle_of_a_read():
    answer = Choices(stream=False)

    def on_step(*_):
        answer.receiver.abandon(1)

    answer.heard[0].on_step = on_step
    answer.take(complete(0, 1), complete(1, 2))
    assert answer.heard[1].calls == []


@given(
    choices=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6), min_size=2, max_size=4),
    data=st.data(),
)
def test_how_choices_are_mixed_and_cut_does_not_matter(choices, data):
    answer, left, messages = Choices(len(choices)), [list(ids) for ids in choices], []
    open_choices = list(range(len(choices)))
    while open_choices:
        choice = data.draw(st.sampled_from(open_choices))
        size = data.draw(st.integers(1, 3))
        part, left[choice] = left[choice][:size], left[choice][size:]
        messages.append(chunk(choice, *part))
        if not left[choice]:
            messages.append(complete(choice, *part))
            open_choices.remove(choice)
    while messages:
        size = data.draw(st.integers(1, 4))
        answer.take(*messages[:size])
        messages = messages[size:]
    assert answer.ids == choices
    assert [answer.finished(choice).completion_tokens for choice in range(len(choices))] == [
        len(ids) for ids in choices
    ]
    assert answer.over[-1][1]
