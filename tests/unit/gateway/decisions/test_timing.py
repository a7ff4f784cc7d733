"""Phases: the header has every phase in order, and they never sum to more than the total."""

from gateway.decisions.timing import PHASES, Phases
from smg_proto.decision.v1 import answer_pb2


def told(phases):
    name, value = phases.header()
    assert name == b"server-timing"
    return {key: float(ms) for key, ms in (each.split(";dur=") for each in value.decode().split(", "))}


def test_states_that_ran_beside_each_other_are_scaled_to_what_passed():
    phases = Phases()
    phases.parsed()
    phases.answered(answer_pb2.DecisionTimings(tokenize_ms=1e6, queue_ms=0, forward_ms=3e6, post_ms=0))
    header = told(phases)
    assert tuple(header) == (*PHASES, "total")
    assert sum(header[name] for name in PHASES) <= header["total"] + 1e-9
    assert header["forward"] >= header["tokenize"]


def test_a_request_that_failed_early_has_all_phases_too():
    assert set(told(Phases())) == {*PHASES, "total"}
