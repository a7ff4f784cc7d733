"""What a model's text turns into: the pieces that parsers give out and sinks write.

A parser holds the state of one choice. It does no I/O; a test feeds it text and looks at the pieces. However the text
is cut, the pieces joined are the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Content(NamedTuple):
    """More of the answer's text. Never empty."""

    text: str


class Reasoning(NamedTuple):
    """More of the reasoning, without its tags. Never empty."""

    text: str


class CallStart(NamedTuple):
    """A call begins.

    Attributes:
        call: its number in the choice, from 0.
        name: of the function.
        id: the id that the model itself wrote; None in formats without ids (somebody else gives one).
    """

    call: int
    name: str
    id: str | None = None


class CallArguments(NamedTuple):
    """More of the JSON text of a call's arguments. Never empty."""

    call: int
    text: str


class CallEnd(NamedTuple):
    """A call is complete: its arguments joined are one JSON object."""

    call: int


class CallBroken(NamedTuple):
    """A call that was started is none: it was cut off, or is not what the format says.

    Attributes:
        call: its number; it is not used again.
        text: everything that the model wrote of it, markup included. It is content of the answer. A whole answer
            shows no such call; a stream, which has begun it, lets it stand unfinished.
    """

    call: int
    text: str


Piece = Content | Reasoning | CallStart | CallArguments | CallEnd | CallBroken
