"""without_sequences: what is left of an event is what the other sequences got."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicers.muting import without_sequences
from smg_proto.engine.v1 import engine_pb2, work_pb2


def tokens_by_sequence(event) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    at = 0
    for sequence, count in zip(event.sequence, event.count or [1] * len(event.sequence), strict=True):
        found.setdefault(sequence, []).extend(event.token[at : at + count])
        at += count
    assert at == len(event.token)
    return found


NUMBERS = st.integers(1, 6)
COLUMNS = st.lists(st.tuples(NUMBERS, st.lists(st.integers(0, 99), min_size=1, max_size=3)), max_size=6)


@given(columns=COLUMNS, has_counts=st.booleans(), muted=st.sets(NUMBERS))
def test_columns_of_other_sequences_are_kept_whole(columns, has_counts, muted):
    if not has_counts:
        columns = [(sequence, tokens[:1]) for sequence, tokens in columns]
    event = engine_pb2.SessionEvent(
        sequence=[sequence for sequence, _ in columns],
        token=[token for _, tokens in columns for token in tokens],
    )
    if has_counts:
        event.count.extend(len(tokens) for _, tokens in columns)
    before = tokens_by_sequence(event)
    rest = without_sequences(event, set(muted))
    assert tokens_by_sequence(rest) == {key: value for key, value in before.items() if key not in muted}


def test_ends_of_muted_sequences_are_taken_out_and_unmute_them():
    event = engine_pb2.SessionEvent(
        finished=[work_pb2.Finished(sequence=1), work_pb2.Finished(sequence=2)],
        failed=[work_pb2.Failed(sequence=3)],
        started=[work_pb2.Started(sequence=4), work_pb2.Started(sequence=5)],
    )
    muted = {1, 3, 4}
    rest = without_sequences(event, muted)
    assert [each.sequence for each in rest.finished] == [2]
    assert not rest.failed
    assert [each.sequence for each in rest.started] == [5]
    assert muted == {4}


def test_the_event_itself_and_its_load_stay_as_they_are():
    event = engine_pb2.SessionEvent(sequence=[1, 2], token=[10, 20], load={"running": 2})
    rest = without_sequences(event, {1})
    assert list(event.sequence) == [1, 2]
    assert rest.load.running == 2
