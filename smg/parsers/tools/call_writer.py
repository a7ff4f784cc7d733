"""Writes calls as pieces, one after the other, and remembers how each was written in case that it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content

if TYPE_CHECKING:
    from smg.parsers.events import Piece


class CallWriter:
    """State of one choice's calls.

    Each call goes: read() for all its text, markup included, start(), arguments(), end(). Or, at any time before the
    end: break_off(), read() for what still belongs to it, end(). A number is used from start() on, broken or not.

    Attributes:
        is_started: start() was called for the current call.
        is_broken: break_off() was.
    """

    __slots__ = ("_number", "_pieces", "_raw", "is_broken", "is_started")

    def __init__(self) -> None:
        self.is_started = self.is_broken = False
        self._number = 0
        self._raw: list[str] = []
        self._pieces: list[Piece] = []

    def read(self, text: str) -> None:
        """More of the current call's text, as the model wrote it."""
        if not text:
            return
        if self.is_broken and not self.is_started:
            self._pieces.append(Content(text))
        else:
            self._raw.append(text)

    def start(self, name: str, call_id: str | None = None) -> None:
        """The function is known, and its arguments begin."""
        self.is_started = True
        self._pieces.append(CallStart(self._number, name, call_id))

    def arguments(self, text: str) -> None:
        """More of the arguments' JSON."""
        if text:
            self._pieces.append(CallArguments(self._number, text))

    def break_off(self) -> None:
        """The current call is none; the same as nothing where that is known."""
        if self.is_broken:
            return
        self.is_broken = True
        if not self.is_started:
            raw = self._take_raw()
            if raw:
                self._pieces.append(Content(raw))

    def end(self) -> None:
        """All of the current call has been read. For one that is not broken, start() was called."""
        raw = self._take_raw()
        if self.is_started:
            self._pieces.append(CallBroken(self._number, raw) if self.is_broken else CallEnd(self._number))
            self._number += 1
        self.is_started = self.is_broken = False

    def forget(self) -> None:
        """What was read since the last end() is markup of no call."""
        self._raw.clear()

    def take(self) -> list[Piece]:
        """The pieces since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _take_raw(self) -> str:
        raw = "".join(self._raw)
        self._raw.clear()
        return raw
