"""<|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>, or JSON objects in that array.

Source: model cards of LFM2, which shows Python and says how to ask for JSON. How a call in Python is written is told in
python_call.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.python_call import PythonCall
from smg.parsers.tools.sections import SectionCalls

if TYPE_CHECKING:
    from smg.parsers.tools.call_writer import CallWriter
    from smg.parsers.tools.tagged import Payload

_LAYOUT = Layout(begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",), gap="[,]")


class _EitherCall:
    """A Payload: the first character tells the form."""

    def __init__(self, writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._writer = writer
        self._call: Payload | None = None

    def feed(self, text: str, start: int) -> int:
        if self._call is None:
            self._call = CallObject(self._writer) if text[start] == "{" else PythonCall(self._writer)
        at = self._call.feed(text, start)
        self.is_done, self.is_broken = self._call.is_done, self._call.is_broken
        return at


class Lfm2Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, _EitherCall)
