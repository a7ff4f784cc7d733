"""Finds where strings could become control tokens of a model, whole or together with what stands next to them."""

from __future__ import annotations

import re
from heapq import merge
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from smg.prompt.control import any_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_BATCH = 4096  # breaks
_FORMAT_PLACE = re.compile(r"[%{]")  # where format() or % put a string into a literal


class Spellings:
    """Finds where a string has to be broken for one set of control tokens. Immutable."""

    def __init__(self, texts: Collection[str], *, template_text: str, exempt: frozenset[str]) -> None:
        """Look for these control tokens.

        Args:
            texts: their spellings.
            template_text: what the templates write literally, parts separated by NUL.
            exempt: strings that are not broken for lying inside a control token.
        """
        self._lowered = frozenset(text.lower() for text in texts)
        self._longest = max(map(len, self._lowered), default=0)
        self._beginnings = frozenset(text[:n] for text in self._lowered for n in range(1, len(text)))
        self._endings = frozenset(text[n:] for text in self._lowered for n in range(1, len(text)))
        self._inside = "\0".join(self._lowered)
        self._any = re.compile(any_of(texts), re.IGNORECASE)
        self._exempt = exempt
        self.openers = tuple({text[0] for text in (*texts, *self._lowered)})
        self.is_joined = any(map(self._opens, template_text.split("\0")))

    def may_break(self, text: str) -> bool:
        """Whether there is anything to break. Quick for the strings that most requests have."""
        for opener in self.openers:
            if opener in text:
                if self._any.search(text):
                    return True
                tail = text[-self._longest :]
                if opener in tail or tail[-1].isspace():
                    return bool(self._edges(text))
        return self.is_joined and (self._any.search(text) is not None or bool(self._edges(text)))

    def break_up(self, text: str, mark: str) -> str:
        """The text with the mark wherever it has to be broken."""
        if not self.may_break(text):
            return text
        # In batches, for a text may be nothing but control tokens: a string object for each would be many times its size.
        parts: list[str] = []
        done = 0
        places = merge(self._spelled(text), sorted(self._edges(text)), [len(text)])
        while batch := list(islice(places, _BATCH)):
            cuts = [done, *batch]
            parts.append(mark.join([text[start:end] for start, end in pairwise(cuts)]))
            done = batch[-1]
        return mark.join(parts)

    def _spelled(self, text: str) -> Iterator[int]:
        """Where control tokens are broken that the text spells, in order."""
        found = self._any.search(text)
        while found:  # finditer() would miss tokens that overlap
            yield found.start() + 1
            found = self._any.search(text, found.start() + 1)

    def _edges(self, text: str) -> set[int]:
        """Where the text is broken off from what may stand around it."""
        breaks: set[int] = set()
        core = text.strip()
        if not core:
            return breaks
        start = text.index(core[0])
        tail = core[-self._longest :].lower()
        if any(tail[n:] in self._beginnings for n in range(len(tail))):
            breaks.add(start + len(core))
        if self.is_joined and self._may_be_joined(core):
            breaks.add(start)
        return breaks

    def _may_be_joined(self, core: str) -> bool:
        """Whether the text is the end or the inside of a control token."""
        head = core[: self._longest].lower()
        if any(head[:n] in self._endings for n in range(1, len(head) + 1)):
            return True
        is_short = len(head) == len(core) and head not in self._lowered
        return is_short and head in self._inside and core not in self._exempt

    def _opens(self, literal: str) -> bool:
        """Whether a template that writes this may continue it with a client's string to a control token."""
        places = [len(literal), *(place.start() for place in _FORMAT_PLACE.finditer(literal))]
        return any(
            literal[start:place].lower() in self._beginnings
            for place in places
            for start in range(max(0, place - self._longest), place)
        )
