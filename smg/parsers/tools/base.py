"""What a tool parser is: it turns the stretches of an answer in which the model calls functions into pieces.

The output parser reads the answer and finds where a call may begin; from there on it gives the text to the tool parser
until that one is idle again. So tags of reasoning inside of an argument mean nothing, and neither do calls inside of
reasoning.

A call that turns out to be none (not what the format says, or cut off) is text again, exactly as it was written, with
the format's markup: as Content where the call was not started yet, else as CallBroken. A format says in its docstring
where the text of a broken call ends; reading goes on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.parsers.events import Piece


class ToolSchema(NamedTuple):
    """What the request says of a function, for formats that write arguments as plain text.

    Attributes:
        name: of the function.
        parameters: JSON Schema of its arguments; empty where the request gives none.
    """

    name: str
    parameters: Mapping[str, Any]


class ToolParser(Protocol):
    """State of one choice. The output parser calls it, never twice at a time.

    Attributes:
        markers: texts that the parser must be told of, wherever they stand in the answer: with them a call begins, or
            what the parser was given before ends. None contains another, except at its end.
        markup: every text with a meaning in the format, markers too. A special token of the vocabulary that stands in
            one of them must be part of the text that the parser gets.
        first: characters with which a call begins where nothing but white space and calls stands before. Read anew
            each time; empty in formats whose calls always have a marker.
    """

    markers: tuple[str, ...]
    markup: tuple[str, ...]
    first: str

    @property
    def is_idle(self) -> bool:
        """No call is being read."""
        ...

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
