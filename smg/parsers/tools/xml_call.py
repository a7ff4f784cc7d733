"""Reads a call whose arguments are pairs of tags with plain text between: <parameter=city>Paris</parameter>.

A value goes up to the first text that is the end tag of values, whatever else stands in it. What it means is told in
text_arguments.py. White space between the tags is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.parsers.tools.argument_types import types_of
from smg.parsers.tools.heads import Head, HeadShape
from smg.parsers.tools.text_arguments import TextArguments

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from smg.parsers.markers import Markers
    from smg.parsers.tools.base import ToolSchema
    from smg.parsers.tools.call_writer import CallWriter


class XmlShape(NamedTuple):
    """The tags of a format.

    Attributes:
        name: the head of the call.
        name_pattern: the whole head, with a group `name`.
        key: behind this mark an argument's key is read.
        end: this mark ends the call; both may end the name's head.
        between: ends with `key` or `end`.
        key_head: the head of an argument.
        key_pattern: the whole head, with a group `key`, and `is_string` ("true" or "string") where the model tells it.
        value_end: ends a value.
        value_begin: stands before a value; None where it follows the key's head.
        trims_newlines: as TextArguments.
        has_entities: names and keys have &quot; and &amp; for what those stand for.
    """

    name: HeadShape
    name_pattern: re.Pattern[str]
    key: str
    end: str
    between: HeadShape
    key_head: HeadShape
    key_pattern: re.Pattern[str]
    value_end: Markers
    value_begin: HeadShape | None = None
    trims_newlines: bool = False
    has_entities: bool = False

    def plain(self, name: str) -> str:
        """What a name or key stands for."""
        return name.replace("&quot;", '"').replace("&amp;", "&") if self.has_entities else name


_NAME, _BETWEEN, _KEY, _BEFORE_VALUE, _VALUE = range(5)


class XmlCall:
    """A Payload."""

    def __init__(self, shape: XmlShape, tools: Sequence[ToolSchema], writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._shape = shape
        self._tools = tools
        self._writer = writer
        self._state = _NAME
        self._head = Head(shape.name)
        self._arguments: TextArguments | None = None
        self._held = ""  # may become the end of the value

    def feed(self, text: str, start: int) -> int:
        """As Payload."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            at = self._read_value(text, at) if self._state == _VALUE else self._read_head(text, at)
        return at

    def _read_head(self, text: str, start: int) -> int:
        head = self._head
        at = head.feed(text, start)
        if head.is_broken:
            self.is_broken = True
        elif head.mark:
            self._end_head(head)
        return at

    def _end_head(self, head: Head) -> None:
        shape = self._shape
        if self._state == _NAME:
            self._start(head)
        if self.is_broken:
            return
        if self._state == _KEY:
            self._begin_argument(head)
        elif head.mark == shape.key:
            self._expect(_KEY, shape.key_head)
        elif head.mark == shape.end:
            self._end()
        elif self._state == _NAME:
            self._expect(_BETWEEN, shape.between)
        else:
            self._state = _VALUE

    def _expect(self, state: int, head: HeadShape) -> None:
        self._state, self._head = state, Head(head)

    def _start(self, head: Head) -> None:
        found = self._shape.name_pattern.fullmatch(head.text)
        if found is None:
            self.is_broken = True
            return
        name = self._shape.plain(found["name"])
        self._writer.start(name)
        self._arguments = TextArguments(
            self._writer, types_of(self._tools, name), trims_newlines=self._shape.trims_newlines
        )

    def _begin_argument(self, head: Head) -> None:
        found = self._shape.key_pattern.fullmatch(head.text)
        if found is None or self._arguments is None:
            self.is_broken = True
            return
        told = found.groupdict().get("is_string")
        is_string = None if told is None else told in ("true", "string")
        self._arguments.begin(self._shape.plain(found["key"]), is_string=is_string)
        if self._shape.value_begin is None:
            self._state = _VALUE
        else:
            self._expect(_BEFORE_VALUE, self._shape.value_begin)

    def _read_value(self, text: str, start: int) -> int:
        arguments = self._arguments
        assert arguments is not None  # noqa: S101 - _begin_argument() looks
        before = 0
        if self._held:
            text, before, start = self._held + text[start:], len(self._held) - start, 0
            self._held = ""
        found = self._shape.value_end.find(text, start)
        end = found.start() if found is not None else self._shape.value_end.safe_end(text, start)
        arguments.text(text[start:end])
        if found is None:
            self._held = text[end:]
            return len(text) - before
        arguments.end_value()
        self._expect(_BETWEEN, self._shape.between)
        return found.end() - before

    def _end(self) -> None:
        if self._arguments is not None:
            self._arguments.end()
        self.is_done = True
