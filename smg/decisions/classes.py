"""Turns a classifier's logits into probabilities, those of overlapping windows into one, and labelled tokens into spans."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTSIDE = "O"
_MARKS = ("B", "I", "E", "S", "L", "U")


class FoundSpan(NamedTuple):
    """A labelled place: code points, the one after the last excluded; the mean probability of its tokens."""

    label: str
    start: int
    end: int
    probability: float


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities of which one applies; they sum to 1."""
    highest = max(logits)
    powers = [math.exp(each - highest) for each in logits]
    total = math.fsum(powers)
    return [each / total for each in powers]


def sigmoid(logit: float) -> float:
    """Probability that it applies, whatever the others do."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)


def joined(rows: Sequence[Sequence[float]], weights: Sequence[int], *, are_independent: bool) -> list[float]:
    """Probabilities of a text out of those of its windows.

    Labels of which one applies: the mean, windows weighted by their tokens. Independent labels: the highest, because a
    text has what any part of it has.
    """
    if len(rows) == 1:
        return list(rows[0])
    columns = zip(*rows, strict=True)
    if are_independent:
        return [max(column) for column in columns]
    total = sum(weights) or len(weights)
    used = weights if sum(weights) else [1] * len(weights)
    return [
        math.fsum(value * weight for value, weight in zip(column, used, strict=True)) / total
        for column in columns
    ]


def outside_of(labels: Sequence[str]) -> int:
    """Index of the label that means none: the one named O, else the first."""
    return labels.index(OUTSIDE) if OUTSIDE in labels else 0


def entity_of(label: str) -> tuple[str, bool]:
    """A label without the mark of its place in a span (B-, I-, …), and whether it begins one."""
    mark, dash, name = label.partition("-")
    if dash and mark in _MARKS and name:
        return name, mark in ("B", "S", "U")
    return label, False


def spans_of(
    text: str, places: Sequence[tuple[int, int]], rows: Sequence[Sequence[float]], labels: Sequence[str]
) -> list[FoundSpan]:
    """Spans out of labelled tokens: neighbours of one entity with nothing but white space between them are one span.

    Args:
        text: that the places are of.
        places: where each token stands.
        rows: for each token the probabilities of all labels.
        labels: their names.
    """
    outside = outside_of(labels)
    entities = [entity_of(label) for label in labels]
    members = {
        name: [index for index, (other, _) in enumerate(entities) if other == name and index != outside]
        for name, _ in entities
    }
    found: list[FoundSpan] = []
    open_at = -1
    chances: list[float] = []
    name = ""

    def close(end: int) -> None:
        nonlocal open_at
        if open_at < 0:
            return
        start = open_at
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if end > start:
            found.append(FoundSpan(name, start, end, math.fsum(chances) / len(chances)))
        open_at = -1

    ended_at = 0
    for (start, end), row in zip(places, rows, strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        entity, begins = entities[best]
        continues = open_at >= 0 and entity == name and not begins and not text[ended_at:start].strip()
        if best == outside or not continues:
            close(ended_at)
        if best != outside:
            if open_at < 0:
                open_at, name, chances = start, entity, []
            chances.append(min(1.0, math.fsum(row[index] for index in members[entity])))
        ended_at = end
    close(ended_at)
    return found
