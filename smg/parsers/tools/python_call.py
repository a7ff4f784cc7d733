"""Reads a call written as Python: name(key=value, …). Values are told in python_scan.py.

The call starts with the first key, or with the bracket that closes it; arguments without a key are none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.parsers.tools.heads import Head, HeadShape
from smg.parsers.tools.python_scan import PythonScanner
from smg.parsers.tools.text_arguments import quoted

if TYPE_CHECKING:
    from smg.parsers.tools.call_writer import CallWriter

_NAME = HeadShape("(", stops=" \t\r\n,=)[]{}<>'\"`")
_KEY = HeadShape("=", ")", stops=",([]{}<>'\"`:")
_NAME_PATTERN = re.compile(r"(?P<name>[^\W\d][\w.\-]*)\(")
_KEY_PATTERN = re.compile(r"\s*(?P<key>[^\W\d]\w*)\s*=")
_NEXT = HeadShape(",", ")", only_space=True)


class PythonCall:
    """A Payload."""

    __slots__ = ("_head", "_is_first", "_name", "_scanner", "_writer", "is_broken", "is_done")

    def __init__(self, writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._writer = writer
        self._name = ""
        self._is_first = True  # no key was read
        self._head: Head | None = Head(_NAME)
        self._scanner: PythonScanner | None = None

    def feed(self, text: str, start: int) -> int:
        """As Payload."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            if self._scanner is not None:
                at = self._read_value(self._scanner, text, at)
            elif self._head is not None:
                at = self._read_head(self._head, text, at)
        return at

    def _read_head(self, head: Head, text: str, start: int) -> int:
        at = head.feed(text, start)
        if head.is_broken:
            self.is_broken = True
        elif not self._name and head.mark:
            found = _NAME_PATTERN.fullmatch(head.text)
            self._name = found["name"] if found is not None else ""
            self.is_broken = found is None
            self._head = Head(_KEY)
        elif head.mark == ",":
            self._head = Head(_KEY)
        elif head.mark == ")":
            self._end(head.text)
        elif head.mark:
            self._begin_value(head.text)
        return at

    def _begin_value(self, text: str) -> None:
        found = _KEY_PATTERN.fullmatch(text)
        if found is None:
            self.is_broken = True
            return
        if self._is_first:
            self._writer.start(self._name)
        self._writer.arguments(("{" if self._is_first else ",") + quoted(found["key"]) + ":")
        self._is_first = False
        self._head, self._scanner = None, PythonScanner()

    def _read_value(self, scanner: PythonScanner, text: str, start: int) -> int:
        out: list[str] = []
        at = scanner.feed(text, start, out)
        self._writer.arguments("".join(out))
        if scanner.is_broken:
            self.is_broken = True
        elif scanner.is_done:
            self._scanner, self._head = None, Head(_NEXT)
        return at

    def _end(self, text: str) -> None:
        if text.rstrip(")").strip():
            self.is_broken = True
            return
        if self._is_first:
            self._writer.start(self._name)
            self._writer.arguments("{")
        self._writer.arguments("}")
        self.is_done = True
