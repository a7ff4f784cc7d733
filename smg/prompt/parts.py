"""Cuts long plain text where no tokenizer of a known kind joins what stands on both sides.

The one rule: encoding the parts gives the ids of the whole. Every pre-tokenizer that split_kinds.py names ends a word
between an ASCII letter and a mark of punctuation (but an apostrophe, which may begin a contraction), and begins one at
the blank between something printed and a letter. No cut falls into or beside an added token that text may spell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PART_CHARS = 1 << 15
_SAFE = re.compile(r"(?<=[A-Za-z])(?=[!-&(-/:-@\[-`{-~])|(?<=[!-~])(?= [A-Za-z])")


class SafeCuts:
    """Where text of one tokenizer may be cut. Immutable."""

    def __init__(self, content: Iterable[str], *, part_chars: int = PART_CHARS) -> None:
        """Cut between these.

        Args:
            content: added tokens that text may spell.
            part_chars: a part ends at the first place after so many characters.
        """
        self._content = tuple(content)
        self._reach = max(map(len, self._content), default=0)
        self._part_chars = part_chars

    def parts(self, text: str) -> Iterator[str]:
        """The text in parts, in order."""
        start = 0
        while len(text) - start > self._part_chars:
            end = self._next_cut(text, start + self._part_chars)
            if end is None:
                break
            yield text[start:end]
            start = end
        yield text[start:] if start else text

    def _next_cut(self, text: str, at: int) -> int | None:
        for match in _SAFE.finditer(text, at):
            place = match.start()
            around = text[max(0, place - self._reach) : place + self._reach]
            if not any(token in around for token in self._content):
                return place
        return None
