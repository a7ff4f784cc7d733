"""Turns arguments that a model writes as plain text, key by key, into the JSON object that they mean.

A string goes out as it comes. Of what else the schema allows only the whole text tells what it is: JSON of a fitting
type is taken as it is written, without spaces; where the type is unknown, JSON of any type; where neither a string nor
JSON fits, what Python writes for it (True, None, {'a': 1}). Everything else is a string. A key that comes twice is
written twice: readers of JSON take the last.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from smg.parsers.tools.argument_types import STRING, UNKNOWN, fits
from smg.parsers.tools.json_scan import JsonScanner, skip_space
from smg.parsers.tools.python_scan import PythonScanner

if TYPE_CHECKING:
    from smg.parsers.tools.argument_types import ArgumentTypes
    from smg.parsers.tools.call_writer import CallWriter

_TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}


class TextArguments:
    """State of one call's arguments; the call was started.

    Call begin(), text() any number of times and end_value() for each argument, then end().
    """

    __slots__ = ("_has_newline", "_held", "_is_first", "_is_string", "_parts", "_trims", "_types", "_value_types",
                 "_writer")  # fmt: skip

    def __init__(self, writer: CallWriter, types: ArgumentTypes, *, trims_newlines: bool) -> None:
        """Take what is known of the arguments.

        Args:
            writer: of the call.
            types: of the function's arguments.
            trims_newlines: one line break at the beginning of a value and one at its end belong to the markup.
        """
        self._writer = writer
        self._types = types
        self._trims = trims_newlines
        self._is_first = True
        self._is_string = False
        self._value_types = UNKNOWN
        self._parts: list[str] = []  # of a value that is no string
        self._has_newline = False  # the value's first character was looked at
        self._held = ""  # a line break that may be the value's last character

    def begin(self, key: str, *, is_string: bool | None = None) -> None:
        """The next value is this key's; is_string: what the model says of it, None where it does not."""
        self._value_types = self._types.of(key)
        if is_string is not None:
            self._value_types = STRING if is_string else self._value_types - STRING
        self._is_string = self._value_types == STRING
        self._has_newline = not self._trims
        self._writer.arguments(("{" if self._is_first else ",") + quoted(key) + ":")
        self._is_first = False
        if self._is_string:
            self._writer.arguments('"')

    def text(self, text: str) -> None:
        """More of the value."""
        if not text:
            return
        if not self._has_newline:
            self._has_newline = True
            text = text.removeprefix("\n")
        if self._trims and text:
            text, self._held = self._held + text, ""
            if text[-1] == "\n":
                text, self._held = text[:-1], "\n"
        if self._is_string:
            self._writer.arguments(quoted(text)[1:-1])
        else:
            self._parts.append(text)

    def end_value(self) -> None:
        """The value is complete."""
        self._held = ""
        if self._is_string:
            self._writer.arguments('"')
            return
        text = "".join(self._parts)
        self._parts.clear()
        self._writer.arguments(json_of(text, self._value_types))

    def nested(self, key: str, written: str) -> None:
        """An argument whose JSON is known."""
        self._writer.arguments(("{" if self._is_first else ",") + quoted(key) + ":" + written)
        self._is_first = False

    def end(self) -> None:
        """The arguments are."""
        self._writer.arguments("{}" if self._is_first else "}")


def quoted(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def json_of(text: str, types: frozenset[str]) -> str:
    """The JSON of one of the types that a text means."""
    literal = text.strip()
    written = _whole(JsonScanner(), literal)
    if written is not None:
        value_type = _TYPES.get(written[0], "number")
        if not types or (value_type != "string" and fits(value_type, types)):
            return written
    if not types or "string" in types:
        return quoted(text)
    if written is None:
        written = _whole(PythonScanner(), literal)
    return quoted(text) if written is None else written


def _whole(scanner: JsonScanner | PythonScanner, literal: str) -> str | None:
    """What the scanner makes of a text that is one value and nothing else; None if it is not."""
    out: list[str] = []
    end = scanner.feed(literal, 0, out)
    if not (scanner.is_done or scanner.is_broken):
        scanner.feed(" ", 0, out)  # what a number waits for
    is_value = scanner.is_done and skip_space(literal, end) == len(literal)
    return "".join(out) if is_value else None
