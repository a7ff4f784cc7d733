"""Calls as plain JSON: the answer begins with an object {"name": …, "arguments": {…}}, or with an array of such.

Behind a call another one may follow, with nothing but white space between. JSON that is no call is content, exactly as
it was written; whether it is one is known at its end at the latest, and it is held until then.

A call counts when its object is complete: there is no marker that could be missing. The text of a broken call that was
not started ends where it broke, and goes on as content. That of a started one, and all that follows in an array after
its first call, goes to the end of the answer: nothing tells where else it might end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.json_scan import skip_space

if TYPE_CHECKING:
    from smg.parsers.events import Piece


class JsonCalls:
    """A ToolParser."""

    def __init__(
        self,
        *,
        first: str = "{[",
        needs_arguments: bool = True,
        repeats: bool = True,
        writer: CallWriter | None = None,
    ) -> None:
        """Take the variant.

        Args:
            first: "{" for a single object, "[" for an array, or both.
            needs_arguments: an object without is no call; else it is a call with {}.
            repeats: another call may follow the object or the array.
            writer: the calls' writer where several parsers number their calls together.
        """
        self.markers: tuple[str, ...] = ()
        self.markup: tuple[str, ...] = ()
        self.first = first
        self.is_idle = True
        self._needs_arguments = needs_arguments
        self._repeats = repeats
        self._writer = writer if writer is not None else CallWriter()
        self._object: CallObject | None = None
        self._is_array = False
        self._calls = 0  # complete, in the array
        self._expects = ""  # the characters one of which must come next, outside of objects

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self._writer.read(marker)
        self.is_idle = False
        self._is_array = False
        self._calls = 0
        self._expects = self.first

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        at = start
        while at < len(text) and not self.is_idle:
            if self._writer.is_broken:
                self._writer.read(text[at:])
                return len(text)
            at = self._read_structure(text, at) if self._object is None else self._read_object(text, at)
        return at

    def finish(self, *, is_cut: bool) -> None:  # noqa: ARG002 - a complete object is a call, whatever ended the text
        """As ToolParser."""
        if self._object is None and self._calls and not self._writer.is_broken:
            self._writer.forget()  # what is missing is the array's end
        self._writer.break_off()
        self._end()

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._writer.take()

    def _read_structure(self, text: str, start: int) -> int:
        at = skip_space(text, start)
        if at == len(text):
            self._writer.read(text[start:])
            return at
        character = text[at]
        if character not in self._expects:
            return self._break(text, start, at)
        if character == "{":
            self._writer.read(text[start:at])
            self._object = CallObject(self._writer, needs_arguments=self._needs_arguments)
            return at
        self._writer.read(text[start : at + 1])
        if character == "]":
            if self._calls:
                self._writer.forget()
            self._writer.break_off()
            self._end()
        elif character == "[":
            self._is_array = True
            self._expects = "{]"
        else:
            self._expects = "{"
        return at + 1

    def _read_object(self, text: str, start: int) -> int:
        reader = self._object
        assert reader is not None  # noqa: S101 - feed() looks
        at = reader.feed(text, start)
        if reader.is_broken:
            self._object = None
            return self._break(text, start, at)
        self._writer.read(text[start:at])
        if reader.is_done:
            self._object = None
            self._calls += 1
            self._writer.end()
            self._expects = ",]"
            if not self._is_array:
                self._end()
        return at

    def _break(self, text: str, start: int, at: int) -> int:
        self._writer.read(text[start:at])
        self._writer.break_off()
        if not self._writer.is_started and not self._calls:
            self._end()
        return at

    def _end(self) -> None:
        """Nothing of the object or array is left to read."""
        self._writer.end()
        self._object = None
        self.is_idle = True
        if not self._repeats:
            self.first = ""
