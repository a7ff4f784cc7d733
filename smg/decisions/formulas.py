"""Turns log-probabilities of answers into probabilities, and those into confidence and scores.

Doubles throughout and nothing rounded: clients compare sums with 1 and take the likeliest option themselves.
Formulas: System One, as its HTTP reference prints them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class NotScores(ValueError):
    """What should be log-probabilities are none: not a number, or nothing at all is possible."""


def probabilities(logprobs: Sequence[float], temperature: float = 1.0) -> list[float]:
    """The softmax of log-probabilities: how likely each answer is, given that it is one of them.

    Args:
        logprobs: natural logarithms, at least one. -inf is an answer that cannot be; not all may be that.
        temperature: above 0; 1 leaves the proportions as they are.

    Returns: as many numbers, each in [0, 1], with the sum 1 within rounding.

    Raises:
        NotScores: a value is NaN or +inf, or all are -inf.
    """
    for each in logprobs:
        if not each < math.inf:  # nor is NaN
            raise NotScores("a log-probability is not a number below infinity")
    highest = max(logprobs, default=-math.inf)
    if highest == -math.inf:
        raise NotScores("no label has any probability")
    weights = [math.exp((each - highest) / temperature) for each in logprobs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def label_mass(logprobs: Sequence[float]) -> float:
    """Probability of all labels together over the whole vocabulary, in [0, 1]."""
    # An engine's rounding may leave a little more than 1.
    return min(1.0, math.fsum([math.exp(min(each, 0.0)) for each in logprobs]))


def likeliest(shares: Sequence[float]) -> int:
    """Index of the highest number, the first of equals."""
    return max(range(len(shares)), key=shares.__getitem__)


def choice_confidence(shares: Sequence[float]) -> float:
    """(p_max - 1/n) / (1 - 1/n): how far the likeliest option stands above an even split. 1 for a single option."""
    count = len(shares)
    if count == 1:
        return 1.0
    return _clipped((count * max(shares) - 1) / (count - 1))


def score_of(shares: Sequence[float]) -> float:
    """The mean of the level numbers, weighted with their probabilities: 0 to n - 1."""
    return math.fsum(level * share for level, share in enumerate(shares))


def score_confidence(shares: Sequence[float]) -> float:
    """1 less the mean distance from the likeliest level, relative to that of an even split; at least 0.

    max(0, 1 - sum_i p_i |i - m| / MAD), MAD = sum_i |i - (n - 1)/2| / n: probability on a neighbouring level costs less
    than the same probability further away. 1 for a single level.
    """
    count = len(shares)
    if count == 1:
        return 1.0
    top = likeliest(shares)
    spread = math.fsum(share * abs(level - top) for level, share in enumerate(shares))
    even = math.fsum(abs(level - (count - 1) / 2) for level in range(count)) / count
    return _clipped(1 - spread / even)


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))
