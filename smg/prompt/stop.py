"""Turns a stream of text into the part before the first stop string.

A match counts when it is complete: the stop string that ends first wins, and of two that end together the longer one.
So the answer never depends on how the text was cut, and no text waits behind a match that is already complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopMatcher:
    """State of one response; feed it text, send on what it returns.

    Attributes:
        matched: the stop string that was found, or None so far. After a match feed() and finish() return "".
    """

    __slots__ = ("_held", "_keep", "_longest", "_stops", "matched")

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        """Take the stop strings.

        Args:
            stops: any number; empty ones are not allowed.
            keep: release the stop string itself too.

        Raises:
            ValueError: a stop string is empty.
        """
        if not all(stops):
            msg = "a stop string is empty; it would match everywhere"
            raise ValueError(msg)
        # Longest first: of two that end at the same place the first in this order is the one to report.
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._longest = len(self._stops[0]) if self._stops else 0
        self._keep = keep
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Take the next piece of text; return what no stop string can reach any more."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = self._first_match(text)
        if found is not None:
            start, stop = found
            self.matched = stop
            self._held = ""
            return text[: start + len(stop)] if self._keep else text[:start]
        safe = self._safe_length(text)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """The text is over: return what was held back for a match that did not come."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        best: tuple[int, str] | None = None
        best_end = len(text) + 1
        for stop in self._stops:
            start = text.find(stop, 0, best_end)
            if start >= 0 and start + len(stop) < best_end:
                best, best_end = (start, stop), start + len(stop)
        return best

    def _safe_length(self, text: str) -> int:
        """Length of the longest prefix after which no unfinished match starts."""
        safe = len(text)
        window = max(0, len(text) - self._longest + 1)
        for stop in self._stops:
            start = text.find(stop[0], window)
            while 0 <= start < safe:
                if stop.startswith(text[start:]):
                    safe = start
                    break
                start = text.find(stop[0], start + 1)
        return safe
