"""Turns the token ids of one response into text, piece by piece.

Bytes of an unfinished UTF-8 character are held back (3 at most), so no piece ever ends inside a character; the pieces
joined are the text of all ids decoded at once, however the ids were cut. Bytes that can never become a character turn
into U+FFFD as Python's error handler "replace" does.
"""

from __future__ import annotations

from codecs import utf_8_decode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.prompt.tokenizer import Tokenizer


class Detokenizer:
    """State of one response.

    Attributes:
        is_clean: nothing is held back and the next token's text does not depend on what came before: its entry in
            the tokenizer's fragment table may be used instead of feed().
    """

    __slots__ = ("_at_start", "_pending", "_slow", "_table", "_vocabulary", "is_clean")

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        """Args: shown, special tokens that are part of the text even where such are skipped."""
        vocabulary = tokenizer.vocabulary
        self._vocabulary = vocabulary
        self._table = (
            vocabulary.bytes_showing(shown) if skip_special_tokens else vocabulary.bytes_with_specials
        )
        self._pending = b""
        self._at_start = vocabulary.drops_leading_space
        self._slow = tokenizer.slow_decoder(skip_special_tokens=skip_special_tokens, shown=shown)
        self.is_clean = self._slow is None and not self._at_start

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next ids; return the text that is certain now. Ids outside the vocabulary have no text."""
        if self._slow is not None:
            return self._slow.feed(ids)
        table = self._table
        try:
            data = b"".join([table[token] for token in ids])
        except IndexError:
            data = b"".join([table[token] for token in ids if token < len(table)])
        if self._at_start:
            data = self._without_leading_space(ids, data)
        if self._pending:
            data = self._pending + data
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        self.is_clean = not self._pending and not self._at_start
        return text

    def finish(self) -> str:
        """The response is over: return what was held back."""
        if self._slow is not None:
            return self._slow.finish()
        text, _ = utf_8_decode(self._pending, "replace", True)
        self._pending = b""
        return text

    def _without_leading_space(self, ids: Sequence[int], data: bytes) -> bytes:
        """Drop the space that the family puts before a text: one space of the text, or the marks of its first token."""
        if not data:
            return data
        self._at_start = False
        if not self._vocabulary.drops_whole_prefix:
            return data.removeprefix(b" ")
        table = self._table
        first = next(token for token in ids if token < len(table) and table[token])
        return self._vocabulary.prefix_dropped(first) + data[len(table[first]) :]
