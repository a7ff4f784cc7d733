"""Reads the short texts that lead to a value: names and keys, each up to the mark behind it, wherever the text is cut.

Before a mark is complete nothing is known, so a head that never gets its mark is only told from the rest of the answer
by its first character that fits nothing: one in which no mark goes on, or one of the shape's stops.
"""

from __future__ import annotations

import re


class HeadShape:
    """Which marks end a head. Immutable, made once for a format.

    Attributes:
        marks: texts that may stand in a head. None begins with another.
        last: those of them that end it.
    """

    __slots__ = ("_first", "_prefixes", "last", "marks", "only_space", "stops")

    def __init__(
        self, *last: str, inner: tuple[str, ...] = (), stops: str = "", only_space: bool = False
    ) -> None:
        """Take the marks.

        Args:
            last: marks that end the head.
            inner: marks that may stand before.
            stops: characters that stand in no head.
            only_space: nothing but white space stands before a mark.
        """
        self.last = frozenset(last)
        self.marks = frozenset((*last, *inner))
        self.stops = stops
        self.only_space = only_space
        self._prefixes = frozenset(mark[:length] for mark in self.marks for length in range(1, len(mark) + 1))
        first = "".join(sorted({mark[0] for mark in self.marks} | set(stops)))
        self._first = re.compile("[" + re.escape(first) + "]")

    def plain_end(self, text: str, start: int) -> int:
        """Where the first character stands that begins a mark or stops the head; else the text's length."""
        found = self._first.search(text, start)
        return found.start() if found is not None else len(text)

    def goes_on(self, text: str) -> bool:
        """Whether a mark begins with the text."""
        return text in self._prefixes


class Head:
    """State of one head.

    Attributes:
        mark: the mark that ended it; "" so far.
        is_broken: it is none.
    """

    __slots__ = ("_begun", "_parts", "_shape", "is_broken", "mark")

    def __init__(self, shape: HeadShape) -> None:
        self.mark = ""
        self.is_broken = False
        self._shape = shape
        self._parts: list[str] = []
        self._begun = ""  # of a mark

    @property
    def text(self) -> str:
        """All that was read, marks included."""
        return "".join(self._parts)

    def feed(self, text: str, start: int) -> int:
        """Read on; returns where the head ends in the text, or the first character that does not fit stands."""
        at, end = start, len(text)
        while at < end and not (self.mark or self.is_broken):
            at = self._read_mark(text, at) if self._begun else self._read_plain(text, at)
        return at

    def _read_plain(self, text: str, start: int) -> int:
        end = self._shape.plain_end(text, start)
        if self._shape.only_space:
            plain = text[start:end]
            skipped = len(plain) - len(plain.lstrip())
            if skipped < len(plain):
                self.is_broken = True
                return start + skipped
        self._parts.append(text[start:end])
        return self._read_mark(text, end) if end < len(text) else end

    def _read_mark(self, text: str, at: int) -> int:
        begun = self._begun + text[at]
        if not self._shape.goes_on(begun):
            self.is_broken = True
            return at
        if begun in self._shape.marks:
            self._parts.append(begun)
            self._begun = ""
            if begun in self._shape.last:
                self.mark = begun
        else:
            self._begun = begun
        return at + 1
