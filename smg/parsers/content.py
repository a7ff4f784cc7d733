"""Decides about the white space around calls, and about calls that nobody wants.

White space that stands alone, since the answer began, since reasoning ended or since a call, waits for what follows:
before a call it is dropped, before text it is given out, at the end it is dropped behind a call and else given out.
White space behind text stays where it is. A broken call gets back what was dropped before it.

Behind max_calls complete calls every further one is dropped, broken or not, with all its text. A broken call does not
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.events import CallBroken, CallEnd, CallStart, Content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.parsers.events import Piece
    from smg.parsers.pieces import PieceList


class AnswerContent:
    """State of one choice's answer; writes to the list that it was given.

    Attributes:
        is_blank: white space that comes now waits.
        has_text: something else than white space and complete calls was written.
    """

    __slots__ = ("_before", "_is_behind_call", "_left", "_out", "_space", "has_text", "is_blank")

    def __init__(self, out: PieceList, *, max_calls: int | None, is_blank: bool) -> None:
        self.is_blank = is_blank
        self.has_text = False
        self._out = out
        self._left = max_calls
        self._space: list[str] = []
        self._before = ""  # what was dropped before the current call
        self._is_behind_call = False

    def text(self, text: str) -> None:
        """More of the answer's text."""
        if self.is_blank:
            if not text or text.isspace():
                self._space.append(text)
                return
            self._give_space()
        self.has_text = True
        self._out.content(text)

    def reasoning_ended(self) -> None:
        """White space that follows may stand before a call."""
        self.is_blank = True

    def calls(self, pieces: Iterable[Piece]) -> None:
        """What the tool parser gave out: calls, and text that turned out to be none."""
        for piece in pieces:
            if self._left == 0:
                if isinstance(piece, CallStart):
                    self._space.clear()
                elif isinstance(piece, CallEnd):
                    self.is_blank = self._is_behind_call = True
            elif isinstance(piece, Content):
                self.text(piece.text)
            else:
                self._call(piece)

    def finish(self) -> None:
        """The answer is over."""
        if not self._is_behind_call:
            self._give_space()

    def _call(self, piece: Piece) -> None:
        if isinstance(piece, CallStart):
            self._before = "".join(self._space)
            self._space.clear()
        elif isinstance(piece, CallEnd):
            self.is_blank = self._is_behind_call = True
            if self._left is not None:
                self._left -= 1
        elif isinstance(piece, CallBroken):
            piece = CallBroken(piece.call, self._before + piece.text)
            self.has_text = True
            self.is_blank = self._is_behind_call = False
        self._out.add(piece)

    def _give_space(self) -> None:
        self._out.content("".join(self._space))
        self._space.clear()
        self.is_blank = self._is_behind_call = False
