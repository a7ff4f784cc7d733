"""Finds fixed texts in a stream that may be cut anywhere, inside of them too."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Markers:
    """Immutable; the caller keeps what safe_end() does not release and puts it before the next text.

    Attributes:
        openers: the characters with which a marker begins.
    """

    __slots__ = ("_pattern", "_openers", "_prefixes", "_reach", "openers")

    def __init__(self, markers: Iterable[str]) -> None:
        """Take the markers; none is fine, and then none is ever found.

        Raises:
            ValueError: a marker is empty, or stands inside another one: which of both is meant would depend on how
                the text is cut. At its end one may stand: both are complete at the same character, and the one that
                begins first is found.
        """
        known = sorted(set(markers))
        if "" in known:
            msg = "a marker is empty; it would be found everywhere"
            raise ValueError(msg)
        for inner, outer in permutations(known, 2):
            if inner in outer[:-1]:
                msg = f"marker {inner!r} stands inside marker {outer!r}"
                raise ValueError(msg)
        self.openers = frozenset(marker[0] for marker in known)
        self._openers = re.compile("[" + re.escape("".join(sorted(self.openers))) + "]") if known else None
        self._pattern = re.compile("|".join(map(re.escape, known))) if known else None
        self._prefixes = frozenset(marker[:length] for marker in known for length in range(1, len(marker)))
        self._reach = max(map(len, known), default=1) - 1

    def may_begin_in(self, text: str) -> bool:
        """Whether one of the openers stands in the text."""
        return self._openers is not None and self._openers.search(text) is not None

    def find(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first marker at or after start."""
        return self._pattern.search(text, start) if self._pattern is not None else None

    def safe_end(self, text: str, start: int = 0) -> int:
        """Where the part of the text ends in which no unfinished marker stands. For texts without a whole one."""
        for at in range(max(start, len(text) - self._reach), len(text)):
            if text[at:] in self._prefixes:
                return at
        return len(text)
