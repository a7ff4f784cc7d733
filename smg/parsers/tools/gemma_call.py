"""Reads a call as Gemma writes it: call:name{key:value,…}, with a mark of its own for quotes.

Values: strings between two quote marks, which hold any text without the mark; numbers, true, false, null; lists in
brackets; objects like the outer one. Other text without quotes is a string, as vLLM reads it. Numbers are as written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.parsers.markers import Markers
from smg.parsers.tools.heads import Head, HeadShape
from smg.parsers.tools.json_scan import MAX_DEPTH
from smg.parsers.tools.python_scan import bare_value
from smg.parsers.tools.text_arguments import quoted

if TYPE_CHECKING:
    from smg.parsers.tools.call_writer import CallWriter

_NAME = HeadShape("{", stops="<>}[],\r\n")
_NAME_PATTERN = re.compile(r"\s*call:\s*(?P<name>[^\s:{]+)\s*\{")
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[^,{}\[\]<]*")

_HEAD, _FIRST_KEY, _KEY, _FIRST_VALUE, _VALUE, _NEXT, _STRING, _TOKEN = range(8)


class QuoteMark:
    """The mark of one generation. Immutable."""

    def __init__(self, mark: str) -> None:
        self.text = mark
        self.first = mark[0]
        self.end = Markers((mark,))
        self.shape = HeadShape(mark)
        self.key = HeadShape(":", inner=(mark,), stops=",{}[]\r\n")


class GemmaCall:
    """A Payload."""

    def __init__(self, quote: QuoteMark, writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._quote = quote
        self._writer = writer
        self._state = _HEAD
        self._head: Head | None = Head(_NAME)
        self._closers: list[str] = []
        self._token: list[str] = []
        self._held: str = ""  # may become the end of the string
        self._out: list[str] = []

    def feed(self, text: str, start: int) -> int:
        """As Payload."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            if self._head is not None:
                at = self._read_head(self._head, text, at)
            elif self._state == _STRING:
                at = self._read_string(text, at)
            elif self._state == _TOKEN:
                at = self._read_token(text, at)
            else:
                at = self._read_structure(text, at)
        self._writer.arguments("".join(self._out))
        self._out.clear()
        return at

    def _read_head(self, head: Head, text: str, start: int) -> int:
        at = head.feed(text, start)
        if head.is_broken:
            self.is_broken = True
        elif head.mark:
            self._head = None
            self._end_head(head)
        return at

    def _end_head(self, head: Head) -> None:
        if self._state == _HEAD:
            found = _NAME_PATTERN.fullmatch(head.text)
            if found is None:
                self.is_broken = True
                return
            self._writer.start(found["name"])
            self._open("{")
        elif self._state == _KEY:
            key = head.text[:-1].strip().removeprefix(self._quote.text).removesuffix(self._quote.text)
            self.is_broken = not key
            self._out.append(quoted(key) + ":")
            self._state = _VALUE
        else:
            self._out.append('"')
            self._state = _STRING

    def _read_structure(self, text: str, start: int) -> int:
        found = _SPACE.match(text, start)
        at = found.end() if found is not None else start
        if at == len(text):
            return at
        character = text[at]
        if self._state in (_FIRST_KEY, _FIRST_VALUE, _NEXT) and character == self._closers[-1]:
            self._close()
            return at + 1
        if self._state in (_FIRST_KEY, _KEY):
            self._state, self._head = _KEY, Head(self._quote.key)
            return at
        if self._state == _NEXT:
            self.is_broken = character != ","
            if self.is_broken:
                return at
            self._out.append(",")
            self._state = _KEY if self._closers[-1] == "}" else _VALUE
            return at + 1
        return self._begin_value(character, at)

    def _begin_value(self, character: str, at: int) -> int:
        if character == self._quote.first:
            self._state, self._head = _STRING, Head(self._quote.shape)
            return at
        if character in "{[":
            self._open(character)
            return at + 1
        if _BARE.fullmatch(character):
            self._state = _TOKEN
        else:
            self.is_broken = True
        return at

    def _open(self, character: str) -> None:
        if len(self._closers) >= MAX_DEPTH:
            self.is_broken = True
            return
        self._closers.append("}" if character == "{" else "]")
        self._state = _FIRST_KEY if character == "{" else _FIRST_VALUE
        self._out.append(character)

    def _close(self) -> None:
        self._out.append(self._closers.pop())
        self._state = _NEXT
        self.is_done = not self._closers

    def _read_string(self, text: str, start: int) -> int:
        before = 0
        if self._held:
            text, before, start = self._held + text[start:], len(self._held) - start, 0
            self._held = ""
        found = self._quote.end.find(text, start)
        end = found.start() if found is not None else self._quote.end.safe_end(text, start)
        self._out.append(quoted(text[start:end])[1:-1])
        if found is None:
            self._held = text[end:]
            return len(text) - before
        self._out.append('"')
        self._state = _NEXT
        return found.end() - before

    def _read_token(self, text: str, start: int) -> int:
        found = _BARE.match(text, start)
        at = found.end() if found is not None else start
        self._token.append(text[start:at])
        if at == len(text):
            return at
        token = "".join(self._token).strip()
        self._token.clear()
        value = bare_value(token)
        self._out.append(quoted(token) if value is None else value)
        self._state = _NEXT
        return at
