"""Turns token ids into bytes by table, as the tokenizer's decoder would.

Known decoders: byte-level (GPT-2's alphabet of 256 printable characters) and SentencePiece's, with or without byte
fallback (`<0xE2>`). from_reference() returns None for any other, and for one where the table disagrees with
`tokenizers` on a sample: then the reference decodes.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokenizers import Tokenizer as HfTokenizer

# JSON need not escape these, and yet some readers of line-based streams take them for the end of a line.
LINE_ENDS = re.compile("[\u0085\u2028\u2029]")
SPACE_MARK = "\u2581"  # SentencePiece writes a space as this
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SAMPLES, _SAMPLE_TOKENS = 24, 16


@dataclass(frozen=True)
class Decoding:
    """How one family's token strings become bytes.

    Attributes:
        token_bytes: bytes of one token string, wherever it stands.
        drops_leading_space: the text of a whole sequence loses one leading space.
        drops_whole_prefix: it loses every space mark of its first token instead.
    """

    token_bytes: Callable[[str], bytes]
    drops_leading_space: bool = False
    drops_whole_prefix: bool = False


def byte_alphabet() -> dict[str, int]:
    """Character to byte, as GPT-2's byte-level vocabularies write bytes: printable ones as they are, others shifted."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(shifted)}


def _byte_level() -> Callable[[str], bytes]:
    alphabet = byte_alphabet()
    # Through Latin-1, whose codes are the bytes; what is not of the alphabet becomes a character that it lacks.
    to_latin1 = {code: chr(alphabet.get(chr(code), 0xFFFF)) for code in range(0x144)}

    def token_bytes(token: str) -> bytes:
        try:
            return token.translate(to_latin1).encode("latin-1")
        except UnicodeEncodeError:  # an added token that is not written in the alphabet stands for itself
            return token.encode()

    return token_bytes


def _sentencepiece(*, byte_fallback: bool) -> Callable[[str], bytes]:
    def token_bytes(token: str) -> bytes:
        if byte_fallback:
            byte = _BYTE_TOKEN.fullmatch(token)
            if byte:
                return bytes([int(byte[1], 16)])
        return token.replace(SPACE_MARK, " ").encode()

    return token_bytes


def decoding_of(decoder: dict[str, Any] | None) -> Decoding | None:
    """The table rule for a decoder as tokenizer.json writes it; None where there is none."""
    match decoder:
        case {"type": "ByteLevel"}:
            return Decoding(_byte_level())
        case {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme} if (
            replacement == SPACE_MARK
        ):
            return Decoding(_sentencepiece(byte_fallback=False), scheme != "never", scheme != "never")
        case {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]}:
            if replace != {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}:
                return None
            if strip not in ([], [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]):
                return None
            return Decoding(_sentencepiece(byte_fallback=True), drops_leading_space=bool(strip))
        case _:
            return None


class Vocabulary:
    """Every token's bytes, by id. Immutable.

    Attributes:
        special_ids: tokens that `skip_special_tokens` leaves out.
        bytes_with_specials: id to bytes; b"" for an id without a token.
        bytes_without_specials: the same, b"" for special tokens.
    """

    def __init__(self, tokens: list[str | None], special_ids: frozenset[int], decoding: Decoding) -> None:
        self._decoding = decoding
        # Only for the families that ask for it again: it would be some megabytes.
        self._tokens = tokens if decoding.drops_whole_prefix else []
        self.special_ids = special_ids
        self.drops_leading_space = decoding.drops_leading_space
        self.drops_whole_prefix = decoding.drops_whole_prefix
        to_bytes = decoding.token_bytes
        self.bytes_with_specials = [b"" if token is None else to_bytes(token) for token in tokens]
        self.bytes_without_specials = _blank(self.bytes_with_specials, special_ids)
        self._showing: dict[frozenset[int], list[bytes]] = {frozenset(): self.bytes_without_specials}

    def __len__(self) -> int:
        return len(self.bytes_with_specials)

    def bytes_showing(self, shown: frozenset[int]) -> list[bytes]:
        """Id to bytes, b"" for special tokens except these. Kept: there are few such sets, one for a format."""
        table = self._showing.get(shown)
        if table is None:
            table = self._showing[shown] = _blank(self.bytes_with_specials, self.special_ids - shown)
        return table

    def fragments_showing(self, shown: frozenset[int]) -> list[bytes | None]:
        """The same as fragments. Not kept."""
        return _blank(self.fragments_with_specials, self.special_ids - shown)

    def prefix_dropped(self, token: int) -> bytes:
        """Bytes of a token that opens a text, where the family drops every space mark of that token."""
        text = self._tokens[token] or ""
        return self._decoding.token_bytes(text.replace(SPACE_MARK, ""))

    @cached_property
    def fragments_with_specials(self) -> list[bytes | None]:
        """Id to the inside of a JSON string; None where the token alone is not complete UTF-8 or ends a line."""
        return [_fragment(token) for token in self.bytes_with_specials]

    @cached_property
    def fragments(self) -> list[bytes | None]:
        """The same, b"" for special tokens."""
        return _blank(self.fragments_with_specials, self.special_ids)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool) -> str:
        """Text of a whole sequence."""
        table = self.bytes_without_specials if skip_special_tokens else self.bytes_with_specials
        known = [token for token in ids if 0 <= token < len(table) and table[token]]
        data = b"".join([table[token] for token in known])
        if known and self.drops_whole_prefix:
            data = self.prefix_dropped(known[0]) + data[len(table[known[0]]) :]
        elif self.drops_leading_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")


def _blank(table: list[Any], special_ids: frozenset[int]) -> list[Any]:
    blanked = table.copy()
    for token in special_ids:
        blanked[token] = b""
    return blanked


def _fragment(token: bytes) -> bytes | None:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return None
    if LINE_ENDS.search(text):
        return None
    escaped = orjson.dumps(text)[1:-1]
    return (
        token if escaped == token else escaped
    )  # the same object in both tables: most tokens need no escape


def decoder_definition(reference: HfTokenizer) -> dict[str, Any] | None:
    """The decoder as tokenizer.json writes it."""
    if reference.decoder is None:
        return None
    return orjson.loads(reference.decoder.__getstate__())


def token_strings(reference: HfTokenizer) -> list[str | None]:
    """Every token string by id; None where an id has no token."""
    vocab = reference.get_vocab(with_added_tokens=True)
    tokens: list[str | None] = [None] * (max(vocab.values(), default=-1) + 1)
    for text, token in vocab.items():
        tokens[token] = text
    for token, added in reference.get_added_tokens_decoder().items():
        tokens[token] = added.content
    return tokens


def vocabulary_from_reference(reference: HfTokenizer) -> tuple[Vocabulary, bool]:
    """Build the table; the flag says whether it decodes exactly as the reference on a sample of valid sequences."""
    added = reference.get_added_tokens_decoder()
    special_ids = frozenset(token for token, definition in added.items() if definition.special)
    decoding = decoding_of(decoder_definition(reference))
    tokens = token_strings(reference)
    if decoding is None:
        return Vocabulary(tokens, special_ids, Decoding(str.encode)), False
    vocabulary = Vocabulary(tokens, special_ids, decoding)
    return vocabulary, _agrees(vocabulary, reference)


def _agrees(vocabulary: Vocabulary, reference: HfTokenizer) -> bool:
    """Compare on sequences of whole tokens: for broken UTF-8 decoders differ among themselves."""
    rng = random.Random(len(vocabulary))  # noqa: S311 - a sample, not a secret
    for _ in range(_SAMPLES):
        drawn = [rng.randrange(len(vocabulary)) for _ in range(_SAMPLE_TOKENS)]
        ids = [token for token in drawn if _is_text(vocabulary.bytes_with_specials[token])]
        for skip in (True, False):
            expected: str = reference.decode(ids, skip_special_tokens=skip)
            if vocabulary.decode(ids, skip_special_tokens=skip) != expected:
                return False
    return True


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
