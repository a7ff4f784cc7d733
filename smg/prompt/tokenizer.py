"""One model's tokenizer: its tables, and text to ids and back.

Text in is text: no spelling in it becomes a control token. Ids out of the vocabulary have no text.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tokenizers.decoders import DecodeStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tokenizers import Tokenizer as HfTokenizer

    from smg.prompt.vocabulary import Vocabulary


class SlowDecoder(Protocol):
    """Decodes one response through the reference, for families without a table."""

    def feed(self, ids: Sequence[int]) -> str:
        """Text that is certain after these ids."""
        ...

    def finish(self) -> str:
        """What is left of the text."""
        ...


class Tokenizer:
    """Immutable, safe to use from several threads.

    Attributes:
        vocab_size: one more than the highest id.
        special_ids: ids that `skip_special_tokens` leaves out.
        eos_ids: ids that end a generation by themselves.
        vocabulary: id to bytes.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        encode: Callable[[str], bytes],
        eos_ids: frozenset[int],
        reference: HfTokenizer | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            vocabulary: id to bytes.
            encode: plain text to packed ids.
            eos_ids: see the class.
            reference: decodes instead of the table, for families whose decoder is no table.
        """
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self.special_ids = vocabulary.special_ids
        self.eos_ids = eos_ids
        self._encode = encode
        self._reference = reference
        self._without: dict[tuple[frozenset[str], bool, frozenset[int]], list[bytes | None]] = {}
        self._specials_in: dict[tuple[str, ...], frozenset[int]] = {}
        self._tables: dict[Callable[[bytes], str], TokenTable] = {}

    @cached_property
    def fragments(self) -> list[bytes | None]:
        """Id to the inside of a JSON string, special tokens empty; None where a token has to go through a Detokenizer.

        Built when first asked for (some 20 ms), so ask before requests wait.
        """
        return [None] * self.vocab_size if self._reference else self.vocabulary.fragments

    @cached_property
    def fragments_with_specials(self) -> list[bytes | None]:
        """The same, special tokens as the text that they are written with."""
        return [None] * self.vocab_size if self._reference else self.vocabulary.fragments_with_specials

    def fragments_without(
        self,
        characters: frozenset[str],
        *,
        skip_special_tokens: bool,
        shown: frozenset[int] = frozenset(),
    ) -> list[bytes | None]:
        """One of these tables, with None for every token that has one of the characters in it.

        Built when first asked for with these characters, as the others. They come from parsers, not from clients: there
        are few such sets.

        Args:
            characters: see above.
            skip_special_tokens: special tokens are empty, except those that are shown.
            shown: as specials_in() tells.
        """
        if not characters and not (shown and skip_special_tokens):
            return self.fragments if skip_special_tokens else self.fragments_with_specials
        key = (characters, skip_special_tokens, shown)
        made = self._without.get(key)
        if made is None:
            table = self._fragments_showing(shown) if skip_special_tokens else self.fragments_with_specials
            pattern = b"|".join(re.escape(character.encode()) for character in characters) or b"(?!)"
            found = re.compile(pattern).search
            made = [None if fragment and found(fragment) else fragment for fragment in table]
            self._without[key] = made
        return made

    def specials_in(self, texts: tuple[str, ...]) -> frozenset[int]:
        """Special tokens that stand in one of these texts: left out, they could not be looked for.

        The texts come from parsers, so what is found is kept.
        """
        found = self._specials_in.get(texts)
        if found is None:
            spelled = ((token, self.token_text(token)) for token in self.special_ids) if texts else ()
            found = frozenset(
                token for token, text in spelled if text.strip() and any(text in each for each in texts)
            )
            self._specials_in[texts] = found
        return found

    def _fragments_showing(self, shown: frozenset[int]) -> list[bytes | None]:
        if not shown or self._reference:
            return self.fragments
        return self.vocabulary.fragments_showing(shown)

    def table(self, write: Callable[[bytes], str]) -> TokenTable:
        """What a function makes of each token's bytes, special or not, by id. Each entry is made once and kept.

        Args:
            write: a function of a module, not one made for the call: tables are kept as long as the tokenizer.
        """
        table = self._tables.get(write)
        if table is None:
            table = self._tables[write] = TokenTable(self, write)
        return table

    def has_token(self, text: str) -> bool:
        """Whether the vocabulary has a token that is spelled like this."""
        return text.encode() in self.vocabulary.bytes_with_specials

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token stands for, special or not; b"" for an id without one."""
        return self.vocabulary.bytes_with_specials[token] if 0 <= token < self.vocab_size else b""

    def token_text(self, token: int) -> str:
        """The same as text, U+FFFD for bytes that are no characters by themselves."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def encode(self, text: str) -> bytes:
        """Packed ids (unsigned, 32 bits, little-endian) of a text, nothing added.

        Raises:
            InvalidRequest: the text has a lone surrogate.
        """
        return self._encode(text)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence."""
        if self._reference is not None:
            return _decode(self._reference, list(ids), skip_special_tokens)
        return self.vocabulary.decode(ids, skip_special_tokens=skip_special_tokens)

    def slow_decoder(
        self, *, skip_special_tokens: bool, shown: frozenset[int] = frozenset()
    ) -> SlowDecoder | None:
        """A decoder for one response where the table does not serve; else None. shown: as for a Detokenizer."""
        if self._reference is None:
            return None
        if skip_special_tokens and shown:
            return _ReferenceDecoder(self._reference, False, self.special_ids - shown)
        return _ReferenceDecoder(self._reference, skip_special_tokens)


class TokenTable(dict[int, str]):
    """Texts by id, made when they are first asked for; never more of them than there are tokens."""

    def __init__(self, tokenizer: Tokenizer, write: Callable[[bytes], str]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._write = write

    def __missing__(self, token: int) -> str:
        text = self._write(self._tokenizer.token_bytes(token))
        if 0 <= token < self._tokenizer.vocab_size:
            self[token] = text
        return text


def _decode(reference: HfTokenizer, ids: list[int], skip_special_tokens: bool) -> str:
    return reference.decode(ids, skip_special_tokens=skip_special_tokens)


class _ReferenceDecoder:
    """Streams with the library's own DecodeStream and settles the rest at the end against the whole sequence."""

    def __init__(
        self, reference: HfTokenizer, skip_special_tokens: bool, hidden: frozenset[int] = frozenset()
    ) -> None:
        """Args: hidden, ids that are left out in any case."""
        self._reference = reference
        self._hidden = hidden
        self._skip = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._ids: list[int] = []
        self._sent = 0

    def feed(self, ids: Sequence[int]) -> str:
        if self._hidden:
            ids = [token for token in ids if token not in self._hidden]
        self._ids += ids
        text = "".join([self._stream.step(self._reference, token) or "" for token in ids])
        self._sent += len(text)
        return text

    def finish(self) -> str:
        return _decode(self._reference, self._ids, self._skip)[self._sent :]
