"""Reads one literal of Python from text that comes in pieces, and writes it as JSON.

Literals: strings in single or double quotes, numbers, True, False, None and JSON's own words, lists, tuples, dicts.
Everything else is broken: names, calls, operators, sets, bytes, f-strings, three quotes. A line break inside of a string
is taken for one, though Python itself wants it escaped: models write it. Numbers are as written where JSON knows the
spelling. Keys of a dict that are no strings become strings.
"""

from __future__ import annotations

import json
import re

from smg.parsers.tools.json_scan import MAX_DEPTH

_SPACE = re.compile(r"\s*")
_STOPS = {'"': re.compile(r'[\\"\x00-\x1f]'), "'": re.compile(r"[\\'\"\x00-\x1f]")}
_BARE = re.compile(r"[\w.+\-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LOOSE_NUMBER = re.compile(r"[+-]?[0-9_]*\.?[0-9_]*(?:[eE][+-]?[0-9_]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {
    "n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f", "a": "\\u0007", "v": "\\u000b", "0": "\\u0000",
    "\\": "\\\\", '"': '\\"', "'": "'", "\n": "",
}  # fmt: skip
_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")
_MAX_DIGITS = 4000  # of numbers that JSON spells in another way

# What may come next; from _STRING on, what is being read.
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT = range(6)
_STRING, _ESCAPE, _CODE, _TOKEN, _DONE, _BROKEN = range(6, 12)


class PythonScanner:
    """State of one value; used as a JsonScanner."""

    __slots__ = ("_closers", "_code", "_comma", "_digits", "_is_key", "_quote", "_state", "_token")

    def __init__(self) -> None:
        self._state = _VALUE
        self._closers: list[str] = []
        self._comma = ""  # goes out before the next value: a comma may stand before a bracket that closes
        self._is_key = False
        self._quote = ""
        self._code: list[str] = []  # hex digits of an escape
        self._digits = 0
        self._token: list[str] = []  # a number or a word

    @property
    def is_done(self) -> bool:
        """The value is complete."""
        return self._state == _DONE

    @property
    def is_broken(self) -> bool:
        """It is none, or too deep."""
        return self._state == _BROKEN

    def feed(self, text: str, start: int, out: list[str]) -> int:
        """Read on from start; out gets the JSON. As JsonScanner.feed()."""
        at, end = start, len(text)
        while at < end and self._state < _DONE:
            if self._state == _STRING:
                at = self._read_string(text, at, out)
            elif self._state == _TOKEN:
                at = self._read_token(text, at, out)
            elif self._state in (_ESCAPE, _CODE):
                at = self._read_escape(text, at, out)
            else:
                at = self._read_structure(text, at, out)
        return at

    def _read_structure(self, text: str, start: int, out: list[str]) -> int:
        found = _SPACE.match(text, start)
        at = found.end() if found is not None else start
        if at == len(text):
            return at
        character = text[at]
        if self._state in (_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY):
            return self._begin_value(text, at, out)
        if self._state == _COLON:
            self._state = _VALUE if character == ":" else _BROKEN
            out.append(":")
        elif character == ",":
            self._comma = ","
            self._state = _FIRST_KEY if self._closers[-1] == "}" else _FIRST_VALUE
        else:
            self._close(character, out)
        return at if self._state == _BROKEN else at + 1

    def _begin_value(self, text: str, at: int, out: list[str]) -> int:
        character = text[at]
        is_key = self._state in (_KEY, _FIRST_KEY)
        may_close = self._state in (_FIRST_VALUE, _FIRST_KEY)
        if may_close and self._closers and character == self._closers[-1]:
            self._close(character, out)
            return at + 1
        if is_key and character in "{[(":
            self._state = _BROKEN
            return at
        out.append(self._comma)
        self._comma = ""
        self._is_key = is_key
        if character in "\"'":
            out.append('"')
            self._quote, self._state = character, _STRING
        elif character in "{[(":
            self._open(character, out)
        elif _BARE.fullmatch(character):
            self._state = _TOKEN
            return at
        else:
            self._state = _BROKEN
        return at if self._state == _BROKEN else at + 1

    def _open(self, character: str, out: list[str]) -> None:
        if len(self._closers) >= MAX_DEPTH:
            self._state = _BROKEN
            return
        self._closers.append({"{": "}", "[": "]", "(": ")"}[character])
        self._state = _FIRST_KEY if character == "{" else _FIRST_VALUE
        out.append("{" if character == "{" else "[")

    def _close(self, character: str, out: list[str]) -> None:
        if not self._closers or character != self._closers[-1]:
            self._state = _BROKEN
            return
        self._comma = ""
        out.append("}" if self._closers.pop() == "}" else "]")
        self._state = _NEXT if self._closers else _DONE

    def _end_value(self) -> None:
        if self._is_key:
            self._is_key, self._state = False, _COLON
        else:
            self._state = _NEXT if self._closers else _DONE

    def _read_string(self, text: str, at: int, out: list[str]) -> int:
        stop = _STOPS[self._quote].search(text, at)
        if stop is None:
            out.append(text[at:])
            return len(text)
        out.append(text[at : stop.start()])
        character = stop.group()
        if character == self._quote:
            out.append('"')
            self._end_value()
        elif character == "\\":
            self._state = _ESCAPE
        else:
            out.append(json.dumps(character)[1:-1])
        return stop.end()

    def _read_escape(self, text: str, at: int, out: list[str]) -> int:
        character = text[at]
        if self._state == _ESCAPE:
            self._state = _STRING
            if character in _DIGITS:
                self._digits, self._state = _DIGITS[character], _CODE
            else:
                out.append(_ESCAPES.get(character) or ("" if character == "\n" else _unknown(character)))
            return at + 1
        if character not in _HEX:
            self._state = _BROKEN
            return at
        self._code.append(character)
        if len(self._code) == self._digits:
            code = int("".join(self._code), 16)
            self._code.clear()
            if code > 0x10FFFF:
                self._state = _BROKEN
                return at
            self._state = _STRING
            out.append(json.dumps(chr(code))[1:-1])
        return at + 1

    def _read_token(self, text: str, start: int, out: list[str]) -> int:
        found = _BARE.match(text, start)
        at = found.end() if found is not None else start
        self._token.append(text[start:at])
        if at == len(text):
            return at
        token = "".join(self._token)
        self._token.clear()
        value = bare_value(token)
        if value is None:
            self._state = _BROKEN
            return at
        out.append(json.dumps(value) if self._is_key else value)
        self._end_value()
        return at


def _unknown(character: str) -> str:
    """An escape that Python does not know: the backslash stands for itself."""
    return "\\\\" + json.dumps(character, ensure_ascii=False)[1:-1]


def bare_value(token: str) -> str | None:
    """The JSON of a number or a word; None where it is neither."""
    if _NUMBER.fullmatch(token):
        return token
    if token in _WORDS:
        return _WORDS[token]
    if len(token) > _MAX_DIGITS or not _LOOSE_NUMBER.fullmatch(token):
        return None
    try:
        value = float(token) if set(token) & set(".eE") else int(token)
    except ValueError:
        return None
    written = json.dumps(value)
    return written if _NUMBER.fullmatch(written) else None
