"""[TOOL_CALLS] and either an array [{"name": …, "arguments": {…}}], or a name and [ARGS]{…}, once a call.

Source: Mistral's tokenizers (mistral-common): arrays up to v7; since v11 name[CALL_ID]id[ARGS]{…}, since v13
name[ARGS]{…}. Where the vocabulary's own texts for the marks are lost, the object follows the name at once, as vLLM's
parser reads it. The id in an array comes behind the arguments, too late to be used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.named_object import NamedObject, NamedShape
from smg.parsers.tools.sections import SectionCalls

if TYPE_CHECKING:
    from smg.parsers.events import Piece

_CALLS, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_SHAPE = NamedShape(
    HeadShape(_ARGUMENTS, "{", inner=(_ID,), stops="\r\n<>\"'"),
    re.compile(r"\s*(?P<name>[^\s\[\]{}]+)(?:\[CALL_ID\](?P<id>[^\s\[\]{}]+))?\s*(?:\[ARGS\]|\{)"),
)
_ARRAY = Layout(begins=(_CALLS,), ends=("]",), gap="[,")
_NAMED = Layout(begins=(_CALLS,), is_single=True)


class MistralCalls:
    """A ToolParser: the first character behind the mark tells the form."""

    def __init__(self) -> None:
        writer = CallWriter()
        self._array = SectionCalls(_ARRAY, CallObject, writer=writer)
        self._named = SectionCalls(_NAMED, lambda each: NamedObject(_SHAPE, each), writer=writer)
        self._current: SectionCalls | None = None
        self._space: list[str] = []  # between the mark and the first character
        self._writer = writer
        self.markers: tuple[str, ...] = (_CALLS,)
        self.markup: tuple[str, ...] = (_CALLS, _ARGUMENTS, _ID)
        self.first = ""
        self.is_idle = True

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self._current = None
        self._space = [marker]
        self.is_idle = False

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        at = start
        if self._current is None:
            while at < len(text) and text[at].isspace():
                at += 1
            self._space.append(text[start:at])
            if at == len(text):
                return at
            self._current = self._array if text[at] in "[{" else self._named
            self._current.begin(_CALLS)
            self._writer.read("".join(self._space[1:]))
        at = self._current.feed(text, at)
        self.is_idle = self._current.is_idle
        return at

    def finish(self, *, is_cut: bool) -> None:
        """As ToolParser."""
        if self._current is None:
            self._writer.read("".join(self._space))
            self._writer.break_off()
            self._writer.end()
        else:
            self._current.finish(is_cut=is_cut)
        self.is_idle = True

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._writer.take()
