"""Breaker: only the worker's own faults open it, and a trial never holds a place for longer than its request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import (
    HTTP_STATUS,
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    ClientGone,
    EngineError,
    InvalidRequest,
)
from smg.workers.breaker import Breaker, BreakerOptions, BreakerState, is_own_fault

OPTIONS = BreakerOptions(failures=3, successes=2, open_s=60, window_s=120)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(OPTIONS, clock)


def open_it(breaker):
    assert [breaker.failed() for _ in range(3)] == [False, False, True]


def test_failures_in_a_row_open_it(breaker):
    open_it(breaker)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.admits(0)
    assert breaker.half_opens_in_s == 60


def test_a_success_between_failures_starts_the_count_again(breaker):
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.is_closed


def test_failures_longer_ago_than_the_window_are_forgotten(breaker, clock):
    for _ in range(10):
        breaker.failed()
        clock.now += 61
    assert breaker.is_closed
    assert breaker.failures == 2


def test_no_threshold_means_no_breaker(clock):
    breaker = Breaker(BreakerOptions(failures=0), clock)
    assert not any(breaker.failed() for _ in range(1000))
    assert breaker.admits(10**6)


def test_successes_of_a_trial_close_it(breaker):
    open_it(breaker)
    assert breaker.try_again(0)
    assert breaker.admits(0)
    assert [breaker.succeeded(), breaker.succeeded()] == [False, True]
    assert breaker.is_closed
    assert breaker.failures == 0


def test_a_failure_of_a_trial_opens_it_for_the_whole_time_again(breaker, clock):
    open_it(breaker)
    clock.now += 60
    breaker.try_again(0)
    breaker.succeeded()
    assert breaker.failed()
    assert breaker.state is BreakerState.OPEN
    assert breaker.half_opens_in_s == 60


def test_a_success_that_began_before_it_opened_does_not_close_it(breaker):
    open_it(breaker)
    for _ in range(10):
        assert not breaker.succeeded()
    assert breaker.state is BreakerState.OPEN


def test_only_so_many_requests_try_at_a_time_and_old_ones_are_no_trial(breaker):
    open_it(breaker)
    breaker.try_again(5)
    assert [breaker.admits(inflight) for inflight in (5, 6, 7)] == [True, True, False]
    # All have ended; from here on every one is a trial.
    assert breaker.admits(0)
    assert not breaker.admits(2)


def test_a_trial_that_says_nothing_frees_its_place_and_changes_nothing(breaker):
    open_it(breaker)
    breaker.try_again(0)
    assert not breaker.admits(2)
    # Refused with 400, or the client left: nobody tells the breaker, and it is in flight no more.
    assert breaker.admits(0)
    assert breaker.state is BreakerState.HALF_OPEN


@given(st.lists(st.sampled_from(["ok", "fault", "again", "tick"]), max_size=60))
def test_it_never_gets_stuck(events):
    clock = Clock()
    breaker = Breaker(OPTIONS, clock)
    for event in events:
        before = breaker.state
        changed = {"ok": breaker.succeeded, "fault": breaker.failed, "again": lambda: breaker.try_again(0)}
        if event == "tick":
            clock.now += 30
        else:
            assert changed[event]() is (breaker.state is not before)
        assert breaker.failures <= OPTIONS.failures
    # Whatever has happened: time and good answers bring it back.
    breaker.try_again(0)
    assert breaker.admits(0)
    for _ in range(OPTIONS.successes):
        breaker.succeeded()
    assert breaker.is_closed


@pytest.mark.parametrize("code", sorted({*HTTP_STATUS, 2, 15}))
def test_a_status_that_is_a_4xx_over_http_or_what_it_cannot_do_is_not_its_fault(code):
    status = HTTP_STATUS.get(code, 500)
    assert is_own_fault(EngineError("x", engine_code=code)) is (status >= 500 and code != UNIMPLEMENTED)


def test_named_faults():
    assert is_own_fault(EngineError("x", engine_code=UNAVAILABLE))
    assert is_own_fault(EngineError("x", engine_code=INTERNAL))
    for error in (
        EngineError("x", engine_code=RESOURCE_EXHAUSTED),
        EngineError("x", engine_code=INVALID_ARGUMENT),
        InvalidRequest("x"),
        ClientGone("x"),
    ):
        assert not is_own_fault(error)
