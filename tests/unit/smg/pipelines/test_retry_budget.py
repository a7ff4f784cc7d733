"""RetryBudget: retries are a share of the requests of the last seconds, and few are always allowed."""

from __future__ import annotations

import pytest

from smg.pipelines.retry_budget import LEAST_RETRIES, WINDOW_S, RetryBudget


class Clock:
    """Time that stands still until it is told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def taken(budget, running=0):
    count = 0
    while count < 100_000 and budget.take(running):
        count += 1
    return count


@pytest.mark.parametrize(
    ("requests", "running", "allowed"),
    [(0, 0, LEAST_RETRIES), (1000, 0, 500), (0, 2000, 1000), (1000, 1000, 500), (10, 10, LEAST_RETRIES)],
)
def test_retries_are_a_share_of_what_began_or_runs_and_at_least_a_few(requests, running, allowed):
    budget = RetryBudget(0.5, clock=Clock())
    for _ in range(requests):
        budget.began()
    assert taken(budget, running) == allowed


def test_what_is_refused_is_told_and_old_requests_and_retries_are_forgotten():
    clock, refused = Clock(), []
    budget = RetryBudget(1.0, lambda: refused.append(1), clock=clock)
    for _ in range(300):
        budget.began()
    assert taken(budget) == 300
    assert len(refused) == 1
    clock.now += WINDOW_S - 1
    assert not budget.take(0)
    clock.now += 1
    assert taken(budget) == LEAST_RETRIES, "the requests and retries of then have gone"
    clock.now += 1e6
    assert taken(budget) == LEAST_RETRIES


def test_without_a_ratio_any_number_is_allowed():
    assert taken(RetryBudget(0.0, clock=Clock())) == 100_000
