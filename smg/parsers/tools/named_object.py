"""Reads a call that is a head with the function's name, then the JSON object of its arguments.

Arguments go out as they come; white space outside of strings is left out of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.parsers.tools.heads import Head, HeadShape
from smg.parsers.tools.json_scan import JsonScanner, skip_space

if TYPE_CHECKING:
    import re

    from smg.parsers.tools.call_writer import CallWriter


class NamedShape(NamedTuple):
    """What stands around the object.

    Attributes:
        head: ends with the mark before the object; or with "{", which is the object's own.
        pattern: the whole head, with a group `name`, and `id` where the model writes ids.
        tail: stands behind the object, after white space; None where nothing does.
    """

    head: HeadShape
    pattern: re.Pattern[str]
    tail: HeadShape | None = None


class NamedObject:
    """A Payload."""

    __slots__ = ("_head", "_scanner", "_shape", "_tail", "_writer", "is_broken", "is_done")

    def __init__(self, shape: NamedShape, writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._shape = shape
        self._writer = writer
        self._head: Head | None = Head(shape.head)
        self._scanner: JsonScanner | None = None
        self._tail = Head(shape.tail) if shape.tail is not None else None

    def feed(self, text: str, start: int) -> int:
        """As Payload."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            if self._head is not None:
                at = self._read_head(self._head, text, at)
            elif self._scanner is not None:
                at = self._read_object(self._scanner, text, at)
            else:
                at = self._read_tail(text, at)
        return at

    def _read_head(self, head: Head, text: str, start: int) -> int:
        at = head.feed(text, start)
        if head.is_broken:
            self.is_broken = True
        elif head.mark:
            self._head = None
            self._scanner = JsonScanner()
            found = self._shape.pattern.fullmatch(head.text)
            if found is None:
                self.is_broken = True
                return at
            groups = found.groupdict()
            self._writer.start(found["name"], groups.get("id"))
            if head.mark == "{":
                self._scanner.feed("{", 0, [])
                self._writer.arguments("{")
        return at

    def _read_object(self, scanner: JsonScanner, text: str, start: int) -> int:
        if scanner.is_fresh:
            at = skip_space(text, start)
            if at == len(text):
                return at
            if text[at] != "{":
                self.is_broken = True
                return at
            start = at
        out: list[str] = []
        at = scanner.feed(text, start, out)
        self._writer.arguments("".join(out))
        if scanner.is_broken:
            self.is_broken = True
        elif scanner.is_done:
            self._scanner = None
            self.is_done = self._tail is None
        return at

    def _read_tail(self, text: str, start: int) -> int:
        tail = self._tail
        assert tail is not None  # noqa: S101 - _read_object() looks
        at = tail.feed(text, start)
        self.is_broken = tail.is_broken
        self.is_done = bool(tail.mark)
        return at
