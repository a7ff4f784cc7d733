"""Turns rendered text into packed ids, one segment between control tokens at a time, with a cache of segments.

Segments tokenize independently of each other (checked per tokenizer when it is loaded, see builder.py), so what a chat
has in common with earlier ones, its system prompt and earlier turns, costs a lookup each.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from smg.errors import ContextTooLong
from smg.prompt.packed import ID_BYTES

if TYPE_CHECKING:
    from smg.prompt.control import ControlCuts
    from smg.prompt.parts import SafeCuts

_ENTRY_OVERHEAD = 200  # bytes of two objects and their place in a dict, about
_LARGEST_SHARE = 8  # an entry larger than this part of the cache is not kept


# A rendered prompt that is encoded at once: more has pauses in which it may be refused.
SHORT_CHARS = 16_384
_MAX_STORED = 256  # segments of one prompt that are kept: one prompt must not push out everybody else's


def too_long(max_tokens: int) -> ContextTooLong:
    """What is said about a prompt that is refused before all of it is encoded."""
    return ContextTooLong(
        f"This model's maximum context length is {max_tokens} tokens. However, your request has more than"
        f" {max_tokens} input tokens. Please reduce the length of the input."
    )


class _Prompt:
    """What one prompt has come to so far.

    Attributes:
        ids: packed; at most one part of a segment longer than the bound.
    """

    def __init__(self, max_tokens: int | None, reserved: int = 0) -> None:
        self.ids = bytearray()
        self.may_store = _MAX_STORED
        self._max_tokens = max_tokens
        self._reserved = reserved

    def add(self, ids: bytes) -> None:
        """Append.

        Raises:
            ContextTooLong: it is more than the model takes.
        """
        self.ids += ids
        if self._max_tokens is None:
            return
        if len(self.ids) > (self._max_tokens - self._reserved) * ID_BYTES:
            raise too_long(self._max_tokens)


class Frame(NamedTuple):
    """What a template writes around a message.

    Attributes:
        head_ids: packed ids up to the last control token before the message.
        head_text: text between that and the message.
        tail_text: text between the message and the next control token.
        tail_ids: packed ids from that on.
    """

    head_ids: bytes
    head_text: str
    tail_text: str
    tail_ids: bytes


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
        parts: SafeCuts | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            cuts: where control tokens stand.
            plain: encodes a segment, whatever it spells.
            cache: of segments.
            start: encodes the text at the very start of a prompt; None where it is a segment like any other.
            whole: encodes a rendered prompt at once, for tokenizers whose segments depend on each other; else None.
            fast: encodes a segment that spells no control token as `plain` would; None to do without.
            parts: where a long segment may be encoded in parts; None where no such place is known.
        """
        self._cuts = cuts
        self._plain = plain
        self._cache = cache
        self._start = start
        self._whole = whole
        self._fast = fast or plain
        self._parts = parts

    def finished(
        self, cache: SegmentCache, fast: TextEncoder | None, parts: SafeCuts | None
    ) -> PromptEncoder:
        """The same with a cache of its own; the others only where every segment is encoded alike."""
        return PromptEncoder(
            self._cuts,
            plain=self._plain,
            cache=cache,
            start=self._start,
            whole=self._whole,
            fast=fast,
            parts=parts,
        )

    @property
    def is_uniform(self) -> bool:
        """Every segment is encoded alike, wherever it stands: a fast encoder may take part."""
        return self._start is None and self._whole is None

    def encode_rendered(self, rendered: str, mark: str = "", *, max_tokens: int | None = None) -> bytes:
        """Packed ids of a rendered prompt, in which control tokens count.

        Args:
            rendered: text, with the mark in it where content was broken.
            mark: the mark; empty where nothing had to be broken.
            max_tokens: most ids; None for any number.

        Raises:
            ContextTooLong: there are more ids; the rest is not encoded.
        """
        if len(rendered) <= SHORT_CHARS and self.is_uniform:
            pieces = self._cuts.cut_at_once(rendered)
            if pieces is not None:
                return self._encode_short(pieces, mark, max_tokens)
        prompt = _Prompt(max_tokens)
        if self._whole is not None and not mark:
            prompt.add(self._whole.encode(rendered))
            return bytes(prompt.ids)
        for n, piece in enumerate(self._cuts.cut(rendered)):
            if n & 1:
                prompt.add(self._cuts.ids[piece])
            elif piece:
                text = piece.replace(mark, "") if mark else piece
                if n == 0 and self._start is not None:
                    prompt.add(self._start.encode(text))
                else:
                    self._add_segment(prompt, text, may_spell=bool(mark))
        return bytes(prompt.ids)

    def _encode_short(self, pieces: list[str], mark: str, max_tokens: int | None) -> bytes:
        """What `encode_rendered` does, for a text so short that its bound may be looked at when all is encoded."""
        controls, known = self._cuts.ids, self._cache.get
        parts: list[bytes] = []
        for n, piece in enumerate(pieces):
            if n & 1:
                parts.append(controls[piece])
            elif piece:
                text = piece.replace(mark, "") if mark else piece
                ids = known(text)
                parts.append(self._encoded(text, may_spell=bool(mark)) if ids is None else ids)
        packed = b"".join(parts)
        if max_tokens is not None and len(packed) > max_tokens * ID_BYTES:
            raise too_long(max_tokens)
        return packed

    def _encoded(self, text: str, *, may_spell: bool) -> bytes:
        """Ids of a short segment that the cache has not, which gets it."""
        encoder = self._plain if may_spell and self._cuts.spells(text) else self._fast
        ids = encoder.encode(text)
        self._cache.put(text, ids)
        return ids

    def frame(self, before: str, after: str) -> Frame:
        """What stands around a message, from the rendered text before and after it."""
        head, tail = list(self._cuts.cut(before)), list(self._cuts.cut(after))
        return Frame(
            self.encode_rendered("".join(head[:-1])),
            head[-1],
            tail[0],
            self.encode_rendered("".join(tail[1:])),
        )

    def encode_text(self, text: str, *, max_tokens: int | None = None, reserved: int = 0) -> bytes:
        """Packed ids of a text, in which control tokens do not count.

        Args:
            text: any.
            max_tokens: most ids; None for any number.
            reserved: how many of them are for what stands around the text.

        Raises:
            ContextTooLong: there are more ids; the rest is not encoded.
        """
        if 0 < len(text) <= SHORT_CHARS and self._start is None:
            ids = self._cache.get(text)
            if ids is None:
                ids = self._encoded(text, may_spell=True)
            if max_tokens is not None and len(ids) > (max_tokens - reserved) * ID_BYTES:
                raise too_long(max_tokens)
            return ids
        prompt = _Prompt(max_tokens, reserved)
        if text and self._start is not None:
            prompt.add(self._start.encode(text))
        elif text:
            self._add_segment(prompt, text, may_spell=True)
        return bytes(prompt.ids)

    def _add_segment(self, prompt: _Prompt, text: str, *, may_spell: bool) -> None:
        ids = self._cache.get(text)
        if ids is not None:
            prompt.add(ids)
            return
        encoder = self._plain if may_spell and self._cuts.spells(text) else self._fast
        before = len(prompt.ids)
        # Encoders take some hundred bytes of memory for each character while they work.
        for part in self._parts.parts(text) if self._parts else (text,):
            prompt.add(encoder.encode(part))
        if prompt.may_store:
            prompt.may_store -= 1
            self._cache.put(text, bytes(prompt.ids[before:]))
