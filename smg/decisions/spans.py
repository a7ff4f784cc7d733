"""Finds the places of a text that may be a span, and joins those that are.

A model that only scores cannot point. So every word of the text is asked about by itself, without the punctuation
around it, and neighbours that both count become one span. Offsets are Unicode code points, the end exclusive.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# What stands around words and belongs to none; inside of one (an address, a number, "don't") it stays.
_AROUND = r"""\s.,;:!?"'()\[\]{}<>«»„“”‘’…"""  # noqa: RUF001 - quotation marks of several languages
_WORD = re.compile(rf"[^{_AROUND}](?:\S*[^{_AROUND}])?")


class Place(NamedTuple):
    """A piece of a text.

    Attributes:
        start: first character. end: one more than the last.
    """

    start: int
    end: int


class Span(NamedTuple):
    """A place that counts, and how likely it is."""

    start: int
    end: int
    probability: float


def words(text: str) -> list[Place]:
    """The words of a text, in order, without the punctuation around them."""
    return [Place(*match.span()) for match in _WORD.finditer(text)]


def joined(text: str, places: Sequence[Place], shares: Sequence[float], threshold: float) -> list[Span]:
    """The places at or above the threshold; neighbours with nothing but blanks between them are one.

    A joined span is as likely as its least likely word.
    """
    found: list[Span] = []
    previous = -1
    for number, (place, share) in enumerate(zip(places, shares, strict=True)):
        if share < threshold:
            continue
        last = found[-1] if found else None
        if last is not None and previous == number - 1 and text[last.end : place.start].isspace():
            found[-1] = Span(last.start, place.end, min(last.probability, share))
        else:
            found.append(Span(place.start, place.end, share))
        previous = number
    return found
