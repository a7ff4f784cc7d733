"""Listeners: an event's columns reach the right listeners, however the engine cuts a sequence into events."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.workers.listeners import Listeners, ids_from_bytes
from smg_proto.engine.v1 import engine_pb2, work_pb2
from tests.unit.smg.workers.recorder import Recorder


def listening(*sequences: int) -> tuple[Listeners, dict[int, Recorder], list[int]]:
    aborted: list[int] = []
    listeners, recorders = Listeners(aborted.append), {}
    for sequence in sequences:
        recorders[sequence] = Recorder()
        listeners.add_generate(sequence, recorders[sequence])
    return listeners, recorders, aborted


def finish(sequence: int, **fields) -> work_pb2.Finished:
    return work_pb2.Finished(sequence=sequence, reason=work_pb2.FINISH_REASON_STOP, **fields)


def test_one_token_each_when_there_are_no_counts():
    listeners, heard, _ = listening(1, 2)
    listeners.dispatch(engine_pb2.SessionEvent(sequence=[2, 1], token=[20, 10]))
    assert heard[1].calls == [("step", [10], [], None)]
    assert heard[2].calls == [("step", [20], [], None)]


def test_tokens_and_finish_of_one_event_come_in_one_call():
    listeners, heard, _ = listening(1, 2)
    end = finish(1, completion_tokens=3)
    listeners.dispatch(
        engine_pb2.SessionEvent(sequence=[1, 2], token=[10, 11, 20], count=[2, 1], finished=[end])
    )
    assert heard[1].calls == [("step", [10, 11], [], end)]
    assert heard[2].calls == [("step", [20], [], None)]
    assert len(listeners) == 1


def test_a_finish_without_tokens_is_a_step_of_its_own():
    listeners, heard, _ = listening(1)
    listeners.dispatch(engine_pb2.SessionEvent(finished=[finish(1)]))
    assert heard[1].calls == [("step", [], [], finish(1))]


def test_the_ids_of_a_whole_answer_come_as_arguments():
    listeners, heard, _ = listening(1)
    rows = [work_pb2.TokenLogprobs(logprob=-0.5), work_pb2.TokenLogprobs(logprob=-1.5)]
    end = finish(1, token_ids=array("I", [70_000, 5]).tobytes(), logprobs=rows)
    listeners.dispatch(engine_pb2.SessionEvent(finished=[end]))
    assert heard[1].calls == [("step", [70_000, 5], [-0.5, -1.5], end)]


def test_started_comes_before_the_tokens_of_the_same_event():
    listeners, heard, _ = listening(1)
    started = work_pb2.Started(sequence=1, prompt_tokens=7)
    listeners.dispatch(
        engine_pb2.SessionEvent(started=[started], sequence=[1], token=[3], finished=[finish(1)])
    )
    assert [call[0] for call in heard[1].calls] == ["started", "step"]


def test_logprobs_go_to_those_that_asked():
    listeners, heard, _ = listening(1, 2)
    rows = work_pb2.StepLogprobs(sequence=2, tokens=[work_pb2.TokenLogprobs(logprob=-2)])
    listeners.dispatch(engine_pb2.SessionEvent(sequence=[1, 2], token=[10, 20], logprobs=[rows]))
    assert heard[1].calls == [("step", [10], [], None)]
    assert heard[2].calls == [("step", [20], [-2.0], None)]


def test_unknown_sequences_are_ignored_and_take_nobodys_tokens():
    listeners, heard, _ = listening(2)
    listeners.dispatch(
        engine_pb2.SessionEvent(
            sequence=[1, 2, 3],
            token=[10, 11, 20, 30],
            count=[2, 1, 1],
            started=[work_pb2.Started(sequence=1)],
            finished=[finish(3)],
            failed=[work_pb2.Failed(sequence=4, code=13)],
            scored=[work_pb2.Scored(sequence=5)],
        )
    )
    assert heard[2].calls == [("step", [20], [], None)]


def test_a_failure_keeps_code_words_and_whether_to_retry():
    listeners, heard, _ = listening(1)
    failed = work_pb2.Failed(sequence=1, code=8, message="queue full", is_retryable=True)
    listeners.dispatch(engine_pb2.SessionEvent(failed=[failed]))
    ((_, error),) = heard[1].calls
    assert (error.engine_code, error.message, error.can_retry) == (8, "queue full", True)
    assert len(listeners) == 0


@pytest.mark.parametrize(
    ("field", "result"),
    [
        ("scored", work_pb2.Scored(sequence=9)),
        ("embedded", work_pb2.Embedded(sequence=9, values=[1.0])),
        ("classified", work_pb2.Classified(sequence=9, logits=[0.5])),
    ],
)
def test_results_reach_their_listener_once(field, result):
    listeners, _, _ = listening()
    heard = Recorder()
    listeners.add_result(9, heard)
    for _ in range(2):
        listeners.dispatch(engine_pb2.SessionEvent(**{field: [result]}))
    assert heard.calls == [("result", result)]


@pytest.mark.parametrize("with_finish", [False, True])
def test_a_listener_that_raises_is_told_and_aborted_and_the_rest_go_on(with_finish, caplog):
    listeners, heard, aborted = listening(1, 2, 3)

    def broken(*_):
        raise ZeroDivisionError("broken")

    heard[2].on_step = broken
    ends = [finish(2)] if with_finish else []
    listeners.dispatch(engine_pb2.SessionEvent(sequence=[1, 2, 3], token=[1, 2, 3], finished=ends))
    assert (heard[1].ids, heard[3].ids) == ([1], [3])
    assert [call[0] for call in heard[2].calls] == ["failed"]
    # An ended sequence needs no abort.
    assert aborted == ([] if with_finish else [2])
    assert len(listeners) == 2
    assert caplog.text.count("listener of sequence 2 raised") == 1


@pytest.mark.parametrize("kind", ["on_started", "on_result"])
def test_other_calls_that_raise_are_told_as_well(kind):
    listeners, heard, aborted = listening(1)
    result = Recorder()
    listeners.add_result(2, result)

    def broken(_):
        raise ZeroDivisionError("broken")

    setattr(heard[1] if kind == "on_started" else result, kind, broken)
    event = engine_pb2.SessionEvent(
        started=[work_pb2.Started(sequence=1)], scored=[work_pb2.Scored(sequence=2)]
    )
    listeners.dispatch(event)
    concerned = heard[1] if kind == "on_started" else result
    assert [call[0] for call in concerned.calls] == ["failed"]
    assert aborted == ([1] if kind == "on_started" else [])


def test_a_listener_may_abort_another_in_mid_event():
    listeners, heard, _ = listening(1, 2)
    heard[1].on_step = lambda *_: listeners.remove(2)
    listeners.dispatch(engine_pb2.SessionEvent(sequence=[1, 2], token=[1, 2], finished=[finish(2)]))
    assert heard[2].calls == []


def test_a_listener_that_aborts_itself_and_raises_is_not_called_again():
    listeners, heard, aborted = listening(1)

    def leave(*_):
        listeners.remove(1)
        raise ZeroDivisionError("gone")

    heard[1].on_step = leave
    listeners.dispatch(engine_pb2.SessionEvent(sequence=[1], token=[1]))
    assert heard[1].calls == []
    assert aborted == [1]


@pytest.mark.parametrize(
    "columns",
    [
        {"sequence": [1, 2], "token": [1]},
        {"sequence": [1], "token": [1, 2]},
        {"sequence": [1], "token": [1, 2], "count": [1, 1]},
        {"sequence": [1, 2], "token": [1, 2, 3], "count": [1, 1]},
        {"sequence": [1, 2], "token": [1], "count": [1, 1]},
    ],
    ids=range(5),
)
def test_columns_that_do_not_match_are_a_fault_of_the_engine(columns):
    listeners, _, _ = listening(1, 2)
    with pytest.raises(ValueError, match=r"zip|by their counts"):
        listeners.dispatch(engine_pb2.SessionEvent(**columns))


def test_ids_are_unsigned_and_little_endian():
    assert list(ids_from_bytes(b"\x01\x00\x00\x00\xff\xff\xff\xff")) == [1, 2**32 - 1]


# One sequence: its tokens, how many of them each event brings, and whether its end comes in an event of its own.
ANSWERS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2**32 - 1), max_size=12),
        st.lists(st.integers(1, 4), min_size=1, max_size=4),
        st.booleans(),
    ),
    max_size=5,
)


@given(answers=ANSWERS)
def test_how_an_answer_is_cut_into_events_does_not_matter(answers):
    listeners, heard, _ = listening(*range(len(answers)))
    rest = {sequence: list(tokens) for sequence, (tokens, _, _) in enumerate(answers)}
    step = 0
    while rest:
        event, counts = engine_pb2.SessionEvent(), []
        for sequence, tokens in list(rest.items()):
            _, sizes, ends_apart = answers[sequence]
            taken = tokens[: sizes[step % len(sizes)]]
            del tokens[: len(taken)]
            if taken:
                event.sequence.append(sequence)
                event.token.extend(taken)
                counts.append(len(taken))
            if not tokens and not (taken and ends_apart):
                event.finished.append(finish(sequence))
                del rest[sequence]
        if any(count != 1 for count in counts):
            event.count.extend(counts)
        listeners.dispatch(event)
        step += 1
    assert [recorder.ids for recorder in heard.values()] == [tokens for tokens, _, _ in answers]
    assert all(recorder.calls[-1][3] is not None for recorder in heard.values())
    assert len(listeners) == 0
