"""What a tool parser is: it turns the stretches of an answer in which the model calls functions into pieces.

The output parser reads the answer and finds where a call may begin; from there on it gives the text to the tool parser
until that one is idle again. So tags of reasoning inside of an argument mean nothing, and neither do calls inside of
reasoning.

A call that turns out to be none (not what the format says, or cut off) is text again, exactly as it was written, with
the format's markup: as Content where the call was not started yet, else as CallBroken. A format says in its docstring
where the text of a broken call ends; reading goes on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from smg.parsers.events import Piece


class ToolParser(Protocol):
    """State of one choice. The output parser calls it, never twice at a time.

    Attributes:
        markers: texts with which a call begins, wherever they stand in the answer. None contains another.
        first: characters with which a call begins where nothing but white space and calls stands before. Read anew
            each time; empty in formats with markers.
        is_idle: no call is being read.
    """

    markers: tuple[str, ...]
    first: str
    is_idle: bool

    def begin(self, marker: str) -> None:
        """A marker has been read, and what comes by feed() stands behind it; "" where feed() begins with one of `first`."""
        ...

    def feed(self, text: str, start: int) -> int:
        """Read on from start.

        Returns: where the parser became idle, or the text's length.
        """
        ...

    def finish(self, *, is_cut: bool) -> None:
        """The text is over while not idle; is_cut: not by the model itself. The parser is idle then."""
        ...

    def take(self) -> list[Piece]:
        """The pieces since the last time. Any number, in order; neighbours of one kind are allowed."""
        ...
