"""The roster finds workers by id, whoever comes, goes, or moves up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smg.policies.roster import MAX_MODELS, PerModel, Roster
from smg.types.worker import WorkerSnapshot

EVERYONE = tuple(WorkerSnapshot(f"w{n}", "u") for n in range(10))


@given(rounds=st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 9)), max_size=20))
def test_what_is_found_is_there_and_is_the_one(rounds):
    roster = Roster()
    for present, wanted in rounds:
        ready = tuple(EVERYONE[index] for index in sorted(present))
        found = roster.find(ready, f"w{wanted}")
        assert found is None or (found in ready and found.id == f"w{wanted}")


@given(gone=st.integers(0, 9), wanted=st.integers(0, 9))
def test_who_is_present_is_found_when_another_has_gone_or_returned(gone, wanted):
    roster = Roster()
    rest = tuple(each for each in EVERYONE if each.id != f"w{gone}")
    for ready in (EVERYONE, rest, EVERYONE, rest):
        found = roster.find(ready, f"w{wanted}")
        assert (found is not None) == any(each.id == f"w{wanted}" for each in ready)


def test_a_worker_that_takes_the_place_of_another_is_found():
    roster = Roster()
    assert roster.find(EVERYONE[:5], "w0") == EVERYONE[0]
    assert roster.find((*EVERYONE[:4], EVERYONE[7]), "w7") == EVERYONE[7]


def test_states_are_kept_for_a_bounded_number_of_models():
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    states = PerModel(make)
    assert [states["a"], states["b"], states["a"]] == [1, 2, 1]
    for number in range(MAX_MODELS):
        assert states[f"model-{number}"]
    assert len(states._states) <= MAX_MODELS
