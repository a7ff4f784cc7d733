"""Reads a text only as far as a number of tokens needs, and tells where in the text each token stands.

A long text is cut before white space that follows something printed: no tokenizer joins what stands on both sides. In a
run without such a place it is cut after MAX_RUN_CHARS. Text that makes next to no tokens, such as white space, or a word of
a megabyte that is one unknown token, is read for MAX_CHARS_PER_TOKEN characters of each token, and no further.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, NamedTuple

from smg.prompt.packed import ID_BYTES, pack_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int]

CHUNK_CHARS = 16_384
MAX_RUN_CHARS = 65_536
MAX_CHARS_PER_TOKEN = 400
_LEAST_CHARS = 65_536
_BEFORE_SPACE = re.compile(r"(?<=\S)(?=\s)")


class ReadText(NamedTuple):
    """The beginning of a text.

    Attributes:
        ids: token ids, packed.
        spans: for each token the code points that it stands for, first and after the last; empty if not asked for.
        is_whole: nothing was left out. Else there are more tokens than were asked for, or the text is too long for them.
    """

    ids: bytes
    spans: list[Span]
    is_whole: bool

    @property
    def tokens(self) -> int:
        """How many."""
        return len(self.ids) // ID_BYTES

    def start(self, tokens: int) -> ReadText:
        """At most so many of them."""
        if self.tokens <= tokens:
            return self
        return ReadText(self.ids[: tokens * ID_BYTES], self.spans[:tokens], False)


class Pairing(NamedTuple):
    """What a tokenizer puts around two texts that are read together, packed."""

    before: bytes
    between: bytes
    after: bytes

    @property
    def tokens(self) -> int:
        """How many tokens that is."""
        return (len(self.before) + len(self.between) + len(self.after)) // ID_BYTES


def chunks(text: str) -> Iterator[tuple[int, str]]:
    """A text in pieces that may be tokenized apart, each with its place."""
    start, length = 0, len(text)
    while length - start > CHUNK_CHARS:
        most = min(length, start + CHUNK_CHARS + MAX_RUN_CHARS)
        found = _BEFORE_SPACE.search(text, start + CHUNK_CHARS, most)
        end = found.start() if found else most
        yield start, text[start:end]
        start = end
    if start < length:
        yield start, text[start:]


def read_ids(text: str, encode: Callable[[str], bytes], max_tokens: int) -> ReadText:
    """Read ids: more than so many, all there are, or those of as much text as is read for so many."""
    ids = bytearray()
    most_chars = _most_chars(max_tokens)
    for start, chunk in chunks(text):
        ids += encode(chunk)
        if len(ids) > max_tokens * ID_BYTES or start + len(chunk) > most_chars:
            return ReadText(bytes(ids), [], start + len(chunk) == len(text))
    return ReadText(bytes(ids), [], True)


def read_spans(text: str, encode: Callable[[str], tuple[list[int], list[Span]]], max_tokens: int) -> ReadText:
    """Read ids and where they stand, as read_ids does."""
    ids = array("I")
    spans: list[Span] = []
    most_chars = _most_chars(max_tokens)
    for start, chunk in chunks(text):
        found, places = encode(chunk)
        ids.extend(found)
        spans += [(start + first, start + last) for first, last in places] if start else places
        if len(ids) > max_tokens or start + len(chunk) > most_chars:
            return ReadText(pack_ids(ids), spans, start + len(chunk) == len(text))
    return ReadText(pack_ids(ids), spans, True)


def _most_chars(max_tokens: int) -> int:
    return max(max_tokens * MAX_CHARS_PER_TOKEN, _LEAST_CHARS)


def too_long(tokens: int, most: int, *, is_whole: bool) -> str:
    """What is said of a text that does not fit."""
    if is_whole:
        return f"has {tokens} tokens; at most {most} are allowed"
    if tokens > most:
        return f"has {tokens} tokens or more; at most {most} are allowed"
    return f"is longer than what is read for {most} tokens, the most allowed: {MAX_CHARS_PER_TOKEN} characters for each"
