"""Reads a call that is one JSON object: {"name": …, "arguments": {…}}, in any order, with `parameters` for `arguments` too.

Arguments go out as they come, as soon as the name is known; white space outside of strings is left out of them. Other
keys are read over. Null for the arguments is as good as none. A string that holds an object as JSON text is taken for
that object, once it is complete. Everything else is broken: a name that is no string or is empty, arguments of another
kind, a second name, second arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.json_scan import JsonScanner, skip_space, string_value

if TYPE_CHECKING:
    from smg.parsers.tools.call_writer import CallWriter

_ARGUMENTS = frozenset(("arguments", "parameters"))


class CallObject:
    """State of one object; writes start() and arguments() of the call, nothing else.

    Attributes:
        is_done: the object is complete, and a call.
        is_broken: it is none. feed() has stopped at the character that shows it, or behind the value that does.
    """

    __slots__ = (
        "_arguments", "_expects", "_has_arguments", "_key", "_name", "_name_key", "_needs_arguments", "_out",
        "_scanner", "_streams", "_writer", "is_broken", "is_done",
    )  # fmt: skip

    def __init__(self, writer: CallWriter, *, needs_arguments: bool = False, name_key: str = "name") -> None:
        """Begin before the object's "{".

        Args:
            writer: of the call.
            needs_arguments: an object without is no call; else it is a call with {}.
            name_key: the key of the function's name.
        """
        self._name_key = name_key
        self.is_done = self.is_broken = False
        self._writer = writer
        self._needs_arguments = needs_arguments
        self._expects = "{"  # characters one of which must come next; "" for a value
        self._scanner: JsonScanner | None = None  # of the key or the value that is being read
        self._out: list[str] = []  # its text
        self._key: str | None = None  # of the value; None while a key is read
        self._name: str | None = None
        self._has_arguments = False
        self._streams = False  # the value goes to the arguments as it comes
        self._arguments: list[str] = []  # that have not gone out

    def feed(self, text: str, start: int) -> int:
        """Read on from start; returns where it stopped: the text's length unless done or broken."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            if self._scanner is not None:
                at = self._read_value(self._scanner, text, at)
            else:
                at = skip_space(text, at)
                if at < end:
                    at = self._read_structure(text, at)
        if self._arguments and self._writer.is_started:
            self._writer.arguments("".join(self._arguments))
            self._arguments.clear()
        return at

    def _read_structure(self, text: str, at: int) -> int:
        character = text[at]
        if not self._expects:
            self._begin_value(character)
            return at
        if character not in self._expects:
            self.is_broken = True
            return at
        if character == '"':
            self._key, self._scanner = None, JsonScanner()
            return at
        if character == "}":
            self._end_object()
        else:
            self._expects = {"{": '"}', ":": "", ",": '"'}[character]
        return at + 1

    def _begin_value(self, character: str) -> None:
        is_arguments = self._key in _ARGUMENTS
        if is_arguments and (self._has_arguments or character not in '{"n'):
            self.is_broken = True
            return
        if self._key == self._name_key and (self._name is not None or character != '"'):
            self.is_broken = True
            return
        self._scanner = JsonScanner()
        self._streams = is_arguments and character == "{"
        if self._streams:
            self._has_arguments = True
            self._start_if_known()

    def _read_value(self, scanner: JsonScanner, text: str, at: int) -> int:
        out = self._arguments if self._streams else self._out
        at = scanner.feed(text, at, out)
        if scanner.is_broken:
            self.is_broken = True
        elif scanner.is_done:
            self._end_value()
        return at

    def _end_value(self) -> None:
        raw = "".join(self._out)
        self._out.clear()
        self._scanner = None
        if self._key is None:
            # A key that is no Unicode is none of ours.
            self._key, self._expects = string_value(raw) or "", ":"
            return
        self._expects = ",}"
        if self._key == self._name_key:
            self._name = string_value(raw)
            self.is_broken = not self._name
            self._start_if_known()
        elif self._key in _ARGUMENTS and not self._streams and raw != "null":
            self._take_text(string_value(raw))
        self._streams = False

    def _take_text(self, text: str | None) -> None:
        """Arguments that were written as a string."""
        scanner, out = JsonScanner(), list[str]()
        end = scanner.feed(text or "", 0, out)
        if text is None or not scanner.is_done or out[0] != "{" or skip_space(text, end) < len(text):
            self.is_broken = True
            return
        self._has_arguments = True
        self._arguments.extend(out)
        self._start_if_known()

    def _start_if_known(self) -> None:
        if self._name and self._has_arguments:
            self._writer.start(self._name)

    def _end_object(self) -> None:
        if not self._name or (self._needs_arguments and not self._has_arguments):
            self.is_broken = True
            return
        if not self._has_arguments:
            self._writer.start(self._name)
            self._arguments.append("{}")
        self.is_done = True
