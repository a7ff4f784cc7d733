"""Turns rendered text into packed ids, one segment between control tokens at a time, with a cache of segments.

Segments tokenize independently of each other (checked per tokenizer when it is loaded, see builder.py), so what a chat
has in common with earlier ones, its system prompt and earlier turns, costs a lookup each.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from smg.prompt.control import ControlCuts

_ENTRY_OVERHEAD = 200  # bytes of two objects and their place in a dict, about
_LARGEST_SHARE = 8  # an entry larger than this part of the cache is not kept


class TextEncoder(Protocol):
    """Turns plain text into packed ids, safe to call from several threads."""

    def encode(self, text: str) -> bytes:
        """Packed ids; no spelling in the text becomes a control token."""
        ...


class SegmentCache:
    """Text to packed ids, bounded by bytes, without a lock on the way of a hit.

    Two generations: an entry that is used moves to the young one, and when that is full the old one is forgotten. So
    what was not used for the length of a generation goes, as in an LRU cache, for the price of a dict lookup.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._half = limit_bytes // 2
        self._largest = limit_bytes // _LARGEST_SHARE
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._young_bytes = 0
        self._lock = threading.Lock()

    def get(self, text: str) -> bytes | None:
        """Ids of a text that is known."""
        ids = self._young.get(text)
        if ids is None:
            ids = self._old.get(text)
            if ids is not None:
                self.put(text, ids)
        return ids

    def put(self, text: str, ids: bytes) -> None:
        """Remember a text."""
        # Python keeps text outside Latin-1 in two or four bytes a character.
        cost = len(text) * (1 if text.isascii() else 4) + len(ids) + _ENTRY_OVERHEAD
        if cost > self._largest:
            return
        with self._lock:
            if text in self._young:
                return
            if self._young_bytes + cost > self._half:
                self._old, self._young, self._young_bytes = self._young, {}, 0
            self._young[text] = ids
            self._young_bytes += cost

    @property
    def size_bytes(self) -> int:
        """Upper bound of what the young generation takes; the old one takes as much at most."""
        return self._young_bytes


class PromptEncoder:
    """Encodes rendered prompts. Safe to use from several threads."""

    def __init__(
        self,
        cuts: ControlCuts,
        *,
        plain: TextEncoder,
        cache: SegmentCache,
        start: TextEncoder | None = None,
        whole: TextEncoder | None = None,
        fast: TextEncoder | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            cuts: where control tokens stand.
            plain: encodes a segment, whatever it spells.
            cache: of segments.
            start: encodes the text at the very start of a prompt; None where it is a segment like any other.
            whole: encodes a rendered prompt at once, for tokenizers whose segments depend on each other; else None.
            fast: encodes a segment that spells no control token as `plain` would; None to do without.
        """
        self._cuts = cuts
        self._plain = plain
        self._cache = cache
        self._start = start
        self._whole = whole
        self._fast = fast or plain

    def finished(self, cache: SegmentCache, fast: TextEncoder | None) -> PromptEncoder:
        """The same with a cache of its own, and with a fast encoder where every segment is encoded alike."""
        return PromptEncoder(
            self._cuts, plain=self._plain, cache=cache, start=self._start, whole=self._whole, fast=fast
        )

    @property
    def is_uniform(self) -> bool:
        """Every segment is encoded alike, wherever it stands: a fast encoder may take part."""
        return self._start is None and self._whole is None

    def encode_rendered(self, rendered: str, mark: str = "") -> bytes:
        """Packed ids of a rendered prompt, in which control tokens count.

        Args:
            rendered: text, with the mark in it where content was broken.
            mark: the mark; empty where nothing had to be broken.
        """
        if self._whole is not None and not mark:
            return self._whole.encode(rendered)
        pieces = self._cuts.cut(rendered)
        ids: list[bytes] = []
        for n, piece in enumerate(pieces):
            if n & 1:
                ids.append(self._cuts.ids[piece])
            elif piece:
                ids.append(self._segment(piece, mark, is_start=n == 0))
        return b"".join(ids)

    def encode_text(self, text: str) -> bytes:
        """Packed ids of a text, in which control tokens do not count."""
        if not text:
            return b""
        if self._start is not None:
            return self._start.encode(text)
        return self._cached(text, may_spell=True)

    def _segment(self, text: str, mark: str, *, is_start: bool) -> bytes:
        if mark:
            text = text.replace(mark, "")
        if is_start and self._start is not None:
            return self._start.encode(text)
        return self._cached(text, may_spell=bool(mark))

    def _cached(self, text: str, *, may_spell: bool) -> bytes:
        ids = self._cache.get(text)
        if ids is None:
            encoder = self._plain if may_spell and self._cuts.spells(text) else self._fast
            ids = encoder.encode(text)
            self._cache.put(text, ids)
        return ids
