"""The formulas: worked values, and what holds for any numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.decisions.formulas import (
    NotScores,
    choice_confidence,
    label_mass,
    likeliest,
    probabilities,
    score_confidence,
    score_of,
)

LOGPROBS = st.lists(st.floats(-80, 0) | st.just(-math.inf), min_size=1, max_size=255).filter(
    lambda each: max(each) > -math.inf
)
INF = math.inf


@given(LOGPROBS, st.floats(0.05, 5))
def test_probabilities_are_some_and_keep_the_order(logprobs, temperature):
    shares = probabilities(logprobs, temperature)
    assert all(0 <= share <= 1 for share in shares)
    assert math.isclose(math.fsum(shares), 1, abs_tol=1e-12)
    assert logprobs[likeliest(shares)] == pytest.approx(max(logprobs), abs=1e-9)


@given(LOGPROBS)
def test_confidence_and_score_stay_in_range(logprobs):
    shares = probabilities(logprobs)
    assert 0 <= choice_confidence(shares) <= 1
    assert 0 <= score_confidence(shares) <= 1
    assert -1e-9 <= score_of(shares) <= len(shares) - 1 + 1e-9
    assert 0 <= label_mass(logprobs) <= 1


def test_the_softmax_of_two():
    assert probabilities([-0.2, -2.0]) == pytest.approx([0.858149, 0.141851], abs=1e-6)


@pytest.mark.parametrize("bad", [[math.nan, -1.0], [INF, -1.0], [-INF, -INF], []])
def test_what_is_no_score_is_told_and_never_becomes_nan(bad):
    with pytest.raises(NotScores):
        probabilities(bad)


# Shares, choice's confidence, score, score's confidence. The third's even spread is 2/3: 1 - 0.38 / 0.6667 = 0.43.
WORKED = [
    ((0.87, 0.13), 0.74, 0.13, 0.74),
    ((0.13, 0.43, 0.44), 0.16, 1.31, 0.0),
    ((0.08, 0.22, 0.70), 0.55, 1.62, 0.43),
    ((1.0,), 1.0, 0.0, 1.0),
    ((0.25, 0.25, 0.25, 0.25), 0.0, 1.5, 0.0),
    ((0.0, 0.0, 1.0), 1.0, 2.0, 1.0),
]


@pytest.mark.parametrize(("shares", "choice", "score", "confidence"), WORKED)
def test_worked_values(shares, choice, score, confidence):
    assert choice_confidence(shares) == pytest.approx(choice, abs=0.006)
    assert score_of(shares) == pytest.approx(score)
    assert score_confidence(shares) == pytest.approx(confidence, abs=0.006)


@pytest.mark.parametrize(
    ("levels", "even"),
    list(enumerate((0.5, 2 / 3, 1, 1.2, 1.5, 1.71429, 2, 2.22222, 2.5), 2)),
)
def test_the_spread_of_an_even_split(levels, even):
    # With all on the lowest level but a little on the highest, the confidence falls by little x distance / even.
    shares = [0.99, *[0.0] * (levels - 2), 0.01]
    assert score_confidence(shares) == pytest.approx(1 - 0.01 * (levels - 1) / even, abs=1e-6)


def test_the_first_of_equals_is_the_likeliest():
    assert likeliest([0.2, 0.4, 0.4]) == 1


def test_the_mass_is_of_the_whole_vocabulary():
    assert label_mass([math.log(0.3), math.log(0.2)]) == pytest.approx(0.5)
    assert label_mass([3.0, -1.0]) == 1.0
