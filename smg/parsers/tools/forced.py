"""Calls that the request demanded: the engine's output is held to a JSON schema, whatever format the model was taught.

RequiredCalls: an array of {"name": …, "parameters": {…}}. NamedCall: the arguments object of the one function. An answer
that does not begin so is content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.json_calls import JsonCalls
from smg.parsers.tools.json_scan import JsonScanner

if TYPE_CHECKING:
    from smg.parsers.events import Piece


class RequiredCalls(JsonCalls):
    """A ToolParser for tool_choice `required`."""

    def __init__(self) -> None:
        super().__init__(first="[", needs_arguments=False, repeats=False)


class NamedCall:
    """A ToolParser for a tool_choice that names the function.

    The call is started with the object's "{". When it is broken, its text goes to the end of the answer.
    """

    def __init__(self, name: str) -> None:
        """Take the function's name."""
        self.markers: tuple[str, ...] = ()
        self.markup: tuple[str, ...] = ()
        self.first = "{"
        self.is_idle = True
        self._name = name
        self._writer = CallWriter()
        self._scanner = JsonScanner()

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self.is_idle = False
        self.first = ""
        self._writer.read(marker)
        self._writer.start(self._name)

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        out: list[str] = []
        at = self._scanner.feed(text, start, out)
        self._writer.arguments("".join(out))
        if self._scanner.is_broken:
            self._writer.break_off()
            at = len(text)
        self._writer.read(text[start:at])
        if self._scanner.is_done:
            self._end()
        return at

    def finish(self, *, is_cut: bool) -> None:  # noqa: ARG002 - incomplete JSON is no call, whatever ended the text
        """As ToolParser."""
        self._writer.break_off()
        self._end()

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._writer.take()

    def _end(self) -> None:
        self._writer.end()
        self.is_idle = True
