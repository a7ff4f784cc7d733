"""HealthGate and WedgeWatch: single observations become a verdict, and no sooner than they should."""

from __future__ import annotations

from smg.workers.health import HealthGate, WedgeWatch


def verdicts(gate: HealthGate, checks: str) -> str:
    """Feed checks (+ good, - bad) and tell the verdict after each."""
    seen = ""
    for check in checks:
        gate.record("" if check == "+" else "sick")
        seen += "+" if gate.is_healthy else "-"
    return seen


def test_nothing_is_healthy_before_its_first_check():
    gate = HealthGate(3, 2)
    assert not gate.is_healthy
    assert gate.reason == "not checked yet"


def test_the_first_check_decides_alone():
    assert verdicts(HealthGate(3, 2), "+") == "+"
    assert verdicts(HealthGate(3, 2), "-") == "-"


def test_one_good_check_suffices_for_a_worker_that_was_never_well():
    assert verdicts(HealthGate(3, 2), "--+--") == "--+++"


def test_so_many_bad_checks_in_a_row_make_it_sick():
    assert verdicts(HealthGate(3, 2), "+---") == "+++-"


def test_a_good_check_between_bad_ones_starts_the_count_again():
    assert verdicts(HealthGate(3, 2), "+--+--+") == "+++++++"


def test_so_many_good_checks_in_a_row_heal_it():
    assert verdicts(HealthGate(1, 2), "+-+-++") == "+----+"


def test_the_reason_is_that_of_the_last_bad_check():
    gate = HealthGate(1, 2)
    gate.record("")
    assert gate.reason == ""
    gate.record("first")
    gate.record("second")
    assert gate.reason == "second"
    gate.record("")
    assert gate.reason == "second"
    gate.record("")
    assert gate.reason == ""


def test_an_engine_that_stands_still_with_work_is_wedged_after_its_time():
    watch = WedgeWatch(30)
    watch.observe(0, 1, 1)
    assert not watch.observe(29.9, 1, 1)
    assert watch.observe(30, 1, 1)
    assert watch.is_wedged
    assert not watch.observe(31, 1, 1)


def test_an_idle_engine_is_never_wedged():
    watch = WedgeWatch(30)
    for now in range(0, 1000, 10):
        watch.observe(now, 1, 0)
    assert not watch.is_wedged


def test_the_time_counts_from_when_the_work_came():
    watch = WedgeWatch(30)
    watch.observe(0, 1, 0)
    watch.observe(100, 1, 0)
    assert not watch.observe(129, 1, 1)
    assert watch.observe(130, 1, 1)


def test_a_step_starts_the_time_again():
    watch = WedgeWatch(30)
    watch.observe(0, 1, 1)
    watch.observe(20, 2, 1)
    assert not watch.observe(40, 2, 1)
    assert watch.observe(50, 2, 1)


def test_only_a_step_ends_it_not_the_end_of_the_work():
    watch = WedgeWatch(30)
    watch.observe(0, 1, 1)
    watch.observe(30, 1, 1)
    assert not watch.observe(40, 1, 0)
    assert watch.is_wedged
    assert watch.observe(41, 2, 0)
    assert not watch.is_wedged


def wedged() -> WedgeWatch:
    watch = WedgeWatch(30)
    watch.observe(0, 1, 1)
    watch.observe(30, 1, 1)
    return watch


def test_an_answer_that_nothing_is_left_on_the_engine_ends_it():
    watch = wedged()
    assert watch.answered(40, steps=7, running=0)
    assert not watch.is_wedged


def test_an_engine_that_still_has_sequences_and_makes_no_step_stays_wedged():
    watch = wedged()
    for now in range(40, 100):
        assert not watch.answered(now, steps=7, running=2)
    assert watch.is_wedged


def test_answers_whose_steps_move_end_it_but_the_first_proves_nothing():
    watch = wedged()
    assert not watch.answered(40, steps=7, running=2)
    assert watch.answered(41, steps=8, running=2)
    assert not watch.is_wedged


def test_an_answer_starts_the_time_again_and_is_forgotten_by_the_next_wedge():
    watch = wedged()
    watch.answered(40, steps=7, running=2)
    watch.answered(41, steps=8, running=2)
    assert not watch.observe(70, 1, 1)
    assert watch.observe(71, 1, 1)
    assert not watch.answered(72, steps=9, running=1)
    assert watch.is_wedged


def test_an_answer_changes_nothing_for_an_engine_that_is_not_wedged():
    watch = WedgeWatch(30)
    watch.observe(0, 1, 1)
    assert not watch.answered(20, steps=7, running=0)
    assert watch.observe(30, 1, 1)
