"""Gathers the pieces of one feed: neighbours of one kind become one piece, and none is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.events import CallArguments, Content, Reasoning

if TYPE_CHECKING:
    from smg.parsers.events import Piece


class PieceList:
    """Write with content(), reasoning() and add(); read and empty with take()."""

    __slots__ = ("_kind", "_pieces", "_texts")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        # The piece that is still growing, as its texts: joining them once keeps many small ones linear.
        self._texts: list[str] = []
        self._kind: type[Content | Reasoning] | int = Content

    def content(self, text: str) -> None:
        """Add text of the answer."""
        self._grow(Content, text)

    def reasoning(self, text: str) -> None:
        """Add text of the reasoning."""
        self._grow(Reasoning, text)

    def add(self, piece: Piece) -> None:
        """Add any piece."""
        if isinstance(piece, CallArguments):
            self._grow(piece.call, piece.text)
        elif isinstance(piece, (Content, Reasoning)):
            self._grow(type(piece), piece.text)
        else:
            self._close()
            self._pieces.append(piece)

    def take(self) -> list[Piece]:
        """All that was added since the last time."""
        self._close()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _grow(self, kind: type[Content | Reasoning] | int, text: str) -> None:
        if kind != self._kind:
            self._close()
            self._kind = kind
        self._texts.append(text)

    def _close(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if not text:
            return
        kind = self._kind
        self._pieces.append(CallArguments(kind, text) if isinstance(kind, int) else kind(text))
