"""Reads one JSON value (RFC 8259) from text that comes in pieces: is it valid, where does it end, how is it without spaces.

Nothing is kept but the open brackets, and every character is looked at once, so a value may be as long as it likes.
"""

from __future__ import annotations

import re

import orjson

MAX_DEPTH = 128

_SPACE = " \t\n\r"
_STRING_STOP = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS = {"t": "rue", "f": "alse", "n": "ull"}

# What may come next; from _STRING on, what is being read.
_VALUE, _FIRST_VALUE, _FIRST_KEY, _KEY, _COLON, _NEXT = range(6)
_STRING, _ESCAPE, _UNICODE, _WORD, _NUMBER, _DONE, _BROKEN = range(6, 13)

# Each part of a number: which characters may follow, and which part they begin or go on.
_DIGITS = "0123456789"
_EXPONENT = {**dict.fromkeys("+-", "exponent sign"), **dict.fromkeys(_DIGITS, "exponent")}
_NUMBER_PARTS: dict[str, dict[str, str]] = {
    "sign": {"0": "zero", **dict.fromkeys("123456789", "integer")},
    "zero": {".": "point", **dict.fromkeys("eE", "e")},
    "integer": {**dict.fromkeys(_DIGITS, "integer"), ".": "point", **dict.fromkeys("eE", "e")},
    "point": dict.fromkeys(_DIGITS, "fraction"),
    "fraction": {**dict.fromkeys(_DIGITS, "fraction"), **dict.fromkeys("eE", "e")},
    "e": _EXPONENT,
    "exponent sign": dict.fromkeys(_DIGITS, "exponent"),
    "exponent": dict.fromkeys(_DIGITS, "exponent"),
}
_WHOLE_NUMBERS = frozenset(("zero", "integer", "fraction", "exponent"))


def skip_space(text: str, at: int) -> int:
    """Where the first character stands, from `at` on, that is no white space in JSON."""
    end = len(text)
    while at < end and text[at] in _SPACE:
        at += 1
    return at


def string_value(raw: str) -> str | None:
    """What a valid JSON string stands for; None where that is not Unicode (half of a surrogate pair)."""
    try:
        return str(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return None


class JsonScanner:
    """State of one value. White space may stand before it; a number ends with the character behind it."""

    __slots__ = ("_closers", "_is_key", "_max_depth", "_part", "_state", "_word")

    def __init__(self, *, max_depth: int = MAX_DEPTH) -> None:
        """Take the bound: a value with more arrays and objects inside each other is broken."""
        self._state = _VALUE
        self._closers: list[str] = []
        self._max_depth = max_depth
        self._is_key = False
        self._part = ""  # of a number
        self._word = ""  # what is left of true, false, null, or of the four digits behind \u

    @property
    def is_fresh(self) -> bool:
        """Nothing of the value was read."""
        return self._state == _VALUE and not self._closers

    @property
    def is_done(self) -> bool:
        """The value is complete."""
        return self._state == _DONE

    @property
    def is_broken(self) -> bool:
        """It is no JSON, or too deep."""
        return self._state == _BROKEN

    def feed(self, text: str, start: int, out: list[str]) -> int:
        """Read on.

        Args:
            text: holds the next characters.
            start: where they begin.
            out: gets them, without the white space outside of strings and else as they are written.

        Returns: where the value ends in the text, or the first character that does not fit stands; else its length.
        """
        at, end = start, len(text)
        while at < end and self._state < _DONE:
            state = self._state
            if state == _STRING:
                at = self._read_string(text, at, out)
            elif state < _STRING:
                at = self._read_structure(text, at, out)
            elif state == _NUMBER:
                at = self._read_number(text, at, out)
            else:
                at = self._read_letter(text, at, out)
        return at

    def _read_string(self, text: str, at: int, out: list[str]) -> int:
        stop = _STRING_STOP.search(text, at)
        if stop is None:
            out.append(text[at:])
            return len(text)
        end = stop.end()
        character = text[end - 1]
        if character == '"':
            if self._is_key:
                self._state = _COLON
            else:
                self._end_value()
        elif character == "\\":
            self._state = _ESCAPE
        else:
            self._state = _BROKEN
            end -= 1
        out.append(text[at:end])
        return end

    def _read_structure(self, text: str, at: int, out: list[str]) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        state = self._state
        if state <= _FIRST_VALUE:
            self._begin_value(character)
        elif state == _COLON:
            self._state = _VALUE if character == ":" else _BROKEN
        elif state == _NEXT:
            self._end_or_go_on(character)
        elif character == '"':
            self._is_key, self._state = True, _STRING
        else:
            self._close(character if state == _FIRST_KEY else "")
        if self._state == _BROKEN:
            return at
        out.append(character)
        return at + 1

    def _begin_value(self, character: str) -> None:
        if character == '"':
            self._is_key, self._state = False, _STRING
        elif character == "{":
            self._open("}", _FIRST_KEY)
        elif character == "[":
            self._open("]", _FIRST_VALUE)
        elif character in _WORDS:
            self._word, self._state = _WORDS[character], _WORD
        elif character == "-":
            self._part, self._state = "sign", _NUMBER
        elif character in _NUMBER_PARTS["sign"]:
            self._part, self._state = _NUMBER_PARTS["sign"][character], _NUMBER
        else:
            self._close(character if self._state == _FIRST_VALUE else "")

    def _end_or_go_on(self, character: str) -> None:
        if character == ",":
            self._state = _KEY if self._closers[-1] == "}" else _VALUE
        else:
            self._close(character)

    def _open(self, closer: str, state: int) -> None:
        if len(self._closers) >= self._max_depth:
            self._state = _BROKEN
            return
        self._closers.append(closer)
        self._state = state

    def _close(self, character: str) -> None:
        if not self._closers or character != self._closers[-1]:
            self._state = _BROKEN
            return
        self._closers.pop()
        self._end_value()

    def _end_value(self) -> None:
        self._state = _NEXT if self._closers else _DONE

    def _read_number(self, text: str, at: int, out: list[str]) -> int:
        begin = at
        while at < len(text):
            part = _NUMBER_PARTS[self._part].get(text[at])
            if part is None:
                if self._part in _WHOLE_NUMBERS:
                    self._end_value()
                else:
                    self._state = _BROKEN
                break
            self._part = part
            at += 1
        out.append(text[begin:at])
        return at

    def _read_letter(self, text: str, at: int, out: list[str]) -> int:
        """One character of true, false or null, or of an escape."""
        character = text[at]
        if self._state == _WORD:
            is_right = character == self._word[0]
            self._word = self._word[1:]
            if not self._word:
                self._end_value()
        elif self._state == _UNICODE:
            is_right = character in _HEX
            self._word = self._word[1:]
            if not self._word:
                self._state = _STRING
        elif character == "u":
            is_right, self._word, self._state = True, "0000", _UNICODE
        else:
            is_right, self._state = character in _ESCAPES, _STRING
        if not is_right:
            self._state = _BROKEN
            return at
        out.append(character)
        return at + 1
