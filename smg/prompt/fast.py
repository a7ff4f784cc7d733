"""Turns text into ids with the optional package tokie, wherever that gives exactly what `tokenizers` gives.

Text that the guard of its pre-tokenizer matches (split_kinds.py) is encoded by the reference: the matched place with
what surrounds it up to the next safe cuts, or the whole text when that is shorter. At load the result is compared with
the reference on probes; one difference and the backend is not used.
"""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from smg.prompt.packed import pack_ids
from smg.prompt.parts import SafeCuts
from smg.prompt.split_kinds import split_kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tokenizers import Tokenizer as HfTokenizer

    from smg.prompt.reference import PlainEncoder
    from smg.prompt.split_kinds import SplitKind

# From about 10,000 bytes on tokie cuts a text for its threads, where no white space is near in the middle of a word or
# even of a character: the ids are wrong, or it panics.
_MOST_BYTES = 8192
_MOST_CHARS = _MOST_BYTES // 4
_CUTS = SafeCuts((), part_chars=_MOST_BYTES // 2)
_SHORT = 512  # characters; a shorter text that the guard matches goes to the reference whole
_LOOK_BACK = 2048  # characters searched for a cut before a matched place
_RANDOM_PROBES = 300
_VOCABULARY_PROBES = 6000  # more than vocabularies have


class FastEncoder:
    """Encodes plain text: tokie where it is exact, the reference elsewhere. Safe to use from several threads.

    The text must not spell an added token of the tokenizer other than those that the guard covers.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], plain: PlainEncoder, kind: SplitKind, cuts: SafeCuts = _CUTS
    ) -> None:
        self._encode_short = encode
        self._cuts = cuts
        self._plain = plain
        self._kind = kind

    def encode(self, text: str) -> bytes:
        """Ids as packed bytes.

        Raises:
            InvalidRequest: the text has a lone surrogate.
        """
        try:
            guarded = self._kind.guarded(text)
        except UnicodeEncodeError:
            return self._plain.encode(text)  # which says what is wrong with it
        if not guarded:
            return self._encode(text)
        if len(text) < _SHORT:
            return self._plain.encode(text)
        islands = self._islands(text, guarded)
        if (
            2 * sum(end - start for start, end in islands) > len(text)
            or len(islands) > len(text) // _SHORT + 8
        ):
            return self._plain.encode(text)
        parts: list[bytes] = []
        done = 0
        for start, end in islands:
            parts += [self._encode(text[done:start]), self._plain.encode(text[start:end])]
            done = end
        parts.append(self._encode(text[done:]))
        return b"".join(parts)

    def _encode(self, text: str) -> bytes:
        """Ids of a text in which the guard found nothing; what cannot be cut short enough goes to the reference."""
        if len(text) <= _MOST_CHARS:  # no longer than _MOST_BYTES, whatever it says
            return pack_ids(self._encode_short(text))
        return b"".join(
            [
                pack_ids(self._encode_short(part))
                if len(part.encode()) <= _MOST_BYTES
                else self._plain.encode(part)
                for part in self._cuts.parts(text)
            ]
        )

    def _islands(self, text: str, guarded: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Widen each guarded span to the safe cuts around it; spans between the same cuts become one."""
        islands: list[tuple[int, int]] = []
        done = 0
        for first, last in guarded:
            if last <= done:
                continue
            start = done
            for cut in self._kind.cut.finditer(text, max(done, first - _LOOK_BACK), first):
                start = cut.start()
            after = self._kind.cut.search(text, last)
            done = after.start() if after else len(text)
            islands.append((start, done))
        return islands


def load_fast_encoder(
    path: Path, reference: HfTokenizer, plain: PlainEncoder, content: Iterable[str]
) -> tuple[FastEncoder | None, str]:
    """Load and check the fast backend.

    Args:
        path: tokenizer.json.
        reference: the same tokenizer, to read its parts from.
        plain: the reference encoder to compare with and to fall back to.
        content: added tokens that are no control tokens.

    Returns: the encoder, or None; and for the log the reason.
    """
    kind = supported_kind(reference)
    if kind is None:
        return None, "no fast backend for this tokenizer family"
    try:
        import tokie
    except ImportError:
        return None, "package tokie is not installed"
    try:
        tokenizer = tokie.Tokenizer.from_json(str(path))
    except (tokie.TokieError, ValueError, OSError) as error:
        return None, f"tokie cannot read it: {error}"

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    content = tuple(content)
    cuts = SafeCuts(content, part_chars=_MOST_BYTES // 2)
    fast = FastEncoder(encode, plain, kind.with_content(content), cuts)
    for probe in [*_PROBES, *islice(_vocabulary_probes(reference), _VOCABULARY_PROBES), *_random_probes()]:
        if fast.encode(probe) != plain.encode(probe):
            return None, f"tokie differs from tokenizers on {probe!r}"
    return fast, f"tokie, {kind.name} rules"


def supported_kind(reference: HfTokenizer) -> SplitKind | None:
    """Byte-level BPE without options, with a known pre-tokenizer, on text as it is or in NFC."""
    model = reference.model
    if type(model).__name__ != "BPE" or model.byte_fallback or model.dropout or model.unk_token:
        return None
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    normalizer = orjson.loads(reference.normalizer.__getstate__()) if reference.normalizer else None
    if normalizer not in (None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []}):
        return None
    if reference.pre_tokenizer is None:
        return None
    return split_kind_of(orjson.loads(reference.pre_tokenizer.__getstate__()))


# Each line is a kind of text that some backend or version got wrong, or that the rules of the families treat apart.
_PROBES = (
    "Hello world, don't we'll I'VE she's it'd 12345 3.14 x=1;\n\n\tif (a) {\n\t\treturn \"b\";\n\t}\n",
    "\n's \t's \r\n'll\u3000'd \u00a0's 's's 'S 'LL '\u017f  's",
    'a\tb\t.K\t\'h\t)f\t_n\t"key": 1\n \n\n\t\n  \n x\n\n\n\ny  z   \n',
    "1 12 123 1234 12345 1234567 0.5 1,000 \u0663\u0664 \u00b2 \u00bd \u2167 \u2167567  \u00bd  \u0663",
    "h\u00e9llo w\u00f6rld stra\u00dfe na\u00efve e\u0301a\u0308 \u01c5 \u02b0 \u00aa",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u4e2d\u6587\uff0c\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0939\u093f\u0928\u094d\u0926\u0940"
    " \u0e44\u0e17\u0e22 \u4e31\u0627 \u0416\u0438\u0437\u043d\u044c",
    "\U0001f600 \U0001f469\u200d\U0001f4bb \U0001f1eb\U0001f1f7 \u2764\ufe0f \U00010348 \u24b6 \ue000 \ufeff",
    "\x00 \x1c \x7f \x85 \x0b \x0c a\x00b \u2028 \u2029 \u1680 \u3000x",
    "http://example.com/a?b=c&d=%20#e  C++ <div class='x'>...</div> `code` **bold** -- --- ... !!! ?!",
    "    four\n        eight\n\ttab\r\ncrlf\r\n\r\n  end  ",
)


def _random_probes() -> Iterator[str]:
    """Mixtures of the fixed ones, the same at every load."""
    rng = random.Random(20)  # noqa: S311 - a sample, not a secret
    pool = sorted(set("".join(_PROBES)))
    words = [" the", "ing", " a", "'s", "123", "  ", "\n\n", "    ", " don't", "=="]
    for _ in range(_RANDOM_PROBES):
        length = rng.choice((2, 3, 5, 8, 30))
        yield "".join(rng.choice(pool if rng.random() < 0.6 else words) for _ in range(length))


def _vocabulary_probes(reference: HfTokenizer) -> Iterator[str]:
    """Tokens that reach over a place where backends split differently: harmless unless the vocabulary has them."""
    tab = "\u0109"  # a tab in the byte-level alphabet
    for token in reference.get_vocab(with_added_tokens=False):
        if ("'" in token or tab in token[:-1]) and token.isprintable():
            text = token.replace(tab, "\t").replace("\u0120", " ").replace("\u010a", "\n")
            yield f"a{text}b"
            yield text
