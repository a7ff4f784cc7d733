"""Puts parsers of several forms of one format together: the marker that was read tells which of them goes on.

They number their calls with one CallWriter, which whoever puts them together gives to each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.parsers.events import Piece
    from smg.parsers.tools.base import ToolParser


class ParserChoice:
    """A ToolParser."""

    def __init__(self, *parsers: ToolParser) -> None:
        """Take the parsers. No two have a marker or a first character in common."""
        self._parsers = parsers
        self._current = parsers[0]
        self.markers: tuple[str, ...] = tuple(marker for parser in parsers for marker in parser.markers)
        self.markup: tuple[str, ...] = tuple(text for parser in parsers for text in parser.markup)
        self.first = "".join(parser.first for parser in parsers)

    @property
    def is_idle(self) -> bool:
        """As ToolParser."""
        return self._current.is_idle

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self._current = next(
            parser for parser in self._parsers if (marker in parser.markers if marker else parser.first)
        )
        self._current.begin(marker)

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        return self._current.feed(text, start)

    def finish(self, *, is_cut: bool) -> None:
        """As ToolParser."""
        self._current.finish(is_cut=is_cut)

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._current.take()
