"""Joins pieces into a whole answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.parsers.events import Piece


class AssembledCall(NamedTuple):
    """A complete call.

    Attributes:
        name: of the function.
        id: the model's own; None in formats without ids.
        arguments: JSON text of one object.
    """

    name: str
    id: str | None
    arguments: str


class Assembled(NamedTuple):
    """A whole answer.

    Attributes:
        content: with the text of broken calls where they stood; None when there is none.
        reasoning: all blocks joined; None when there is none.
        calls: the complete ones, in order.
    """

    content: str | None
    reasoning: str | None
    calls: tuple[AssembledCall, ...]


class _OpenCall(NamedTuple):
    start: CallStart
    arguments: list[str]
    place: int  # in the content's texts, for its own text if it breaks


class Assembler:
    """Takes the pieces of one choice in any portions."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._open: dict[int, _OpenCall] = {}
        self._calls: list[AssembledCall] = []

    def add(self, pieces: Iterable[Piece]) -> None:
        """Take more pieces."""
        for piece in pieces:
            if isinstance(piece, Content):
                self._content.append(piece.text)
            elif isinstance(piece, Reasoning):
                self._reasoning.append(piece.text)
            else:
                self._add_call(piece)

    def assembled(self) -> Assembled:
        """The answer so far. A call that has neither ended nor broken is left out."""
        return Assembled("".join(self._content) or None, "".join(self._reasoning) or None, tuple(self._calls))

    def _add_call(self, piece: CallStart | CallArguments | CallEnd | CallBroken) -> None:
        if isinstance(piece, CallStart):
            self._open[piece.call] = _OpenCall(piece, [], len(self._content))
            self._content.append("")
        elif isinstance(piece, CallArguments):
            self._open[piece.call].arguments.append(piece.text)
        elif isinstance(piece, CallEnd):
            call = self._open.pop(piece.call)
            self._calls.append(AssembledCall(call.start.name, call.start.id, "".join(call.arguments)))
        else:
            self._content[self._open.pop(piece.call).place] = piece.text


def assemble(pieces: Iterable[Piece]) -> Assembled:
    """The answer that the pieces make."""
    assembler = Assembler()
    assembler.add(pieces)
    return assembler.assembled()
