"""Names the pre-tokenizers that the fast backend knows, and for each the texts on which it is not exact.

The backend (tokie) splits text with code written by hand, which departs from the reference in a few places. They were
found by comparing both on every string of up to four characters over one character of each Unicode class, and on every
code point in 30 surroundings (docs/adr/0002-fast-tokenizer.md). A kind's guard finds every place where they could
differ, and what it finds goes to the reference. It may find too much, never too little.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from smg.prompt.control import any_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _TAIL


def _o200k_word(upper: str, lower: str) -> str:
    start = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]" + upper
    return start + r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]" + lower + _CONTRACTIONS + "?"


_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["
    "\r\n"
    r"]*|\s*["
    "\r\n"
    r"]+|\s+(?!\S)|\s+",
)
_O200K = (
    "|".join([_o200k_word("*", "+"), _o200k_word("+", "*"), r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"])
    + _TAIL
)

# Only where a text is cut so that the part a guard matched can be encoded apart: every pre-tokenizer below starts a new
# word at the blank between something printed and a letter, whatever stands around.
_WORD_START = r"(?<=[!-~])(?= [A-Za-z])"
# GPT-2 decides how to split blank lines by what follows them; the others end every run of line ends.
_LINE_START = r"|(?<=\n)(?=\S)"

_PLAIN_ASCII = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F)])


@dataclass(frozen=True)
class Place:
    """A regex for one kind of place, and strings of which a text must hold one before the regex is worth a search."""

    needles: tuple[str, ...]
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class SplitKind:
    """A pre-tokenizer and what has to be kept from the fast backend.

    Attributes:
        name: for logs and tests.
        odd: matches a single character on which the backend may differ, wherever it stands.
        places: where it may differ although every character is harmless.
        cut: matches, without consuming, where a text may be cut and encoded in parts.
    """

    name: str
    odd: re.Pattern[str]
    places: tuple[Place, ...]
    cut: re.Pattern[str]

    def guarded(self, text: str) -> list[tuple[int, int]]:
        """Spans of the text where the backend may differ, in order; mostly none, and then found out fast.

        Raises:
            UnicodeEncodeError: the text has a lone surrogate.
        """
        spans: list[tuple[int, int]] = []
        unusual = text.encode().translate(None, _PLAIN_ASCII)
        if unusual and self.odd.search(unusual.decode()):
            spans += [match.span() for match in self.odd.finditer(text)]
        for place in self.places:
            for needle in place.needles:
                if needle in text:
                    spans += [match.span() for match in place.pattern.finditer(text)]
                    break
        return sorted(spans) if spans else spans

    def with_content(self, tokens: Iterable[str]) -> SplitKind:
        """The same, guarding the spelling of these added tokens as well."""
        tokens = tuple(tokens)
        if not tokens:
            return self
        return replace(self, places=(*self.places, Place(tokens, re.compile(any_of(tokens)))))


def split_kind_of(pre_tokenizer: dict[str, Any] | None) -> SplitKind | None:
    """The kind of a pre-tokenizer as tokenizer.json writes it; None for one that the fast backend must not do."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return _gpt2()
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            ],
        }:
            return _gpt2()
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return {_LLAMA3: _cl100k, _QWEN2: _cl100k, _QWEN35: _cl100k, _O200K: _o200k}.get(
                regex, _unknown
            )()
        case {
            "type": "Sequence",
            "pretokenizers": [*splits, {"type": "ByteLevel", "add_prefix_space": False}],
        }:
            regexes = tuple(split.get("pattern", {}).get("Regex") for split in splits)
            return _deepseek3() if regexes == _DEEPSEEK3 else None
        case _:
            return None


def _unknown() -> None:
    return None


# A blank line with blanks in it; two regexes, for one that begins with a literal is searched several times faster.
_BLANK_LINE = Place((" \n", "\t\n", " \r", "\t\r"), re.compile(r"\n[ \t]+[\r\n]"))
_BLANK_LINE_CR = Place(("\r ", "\r\t"), re.compile(r"\r[ \t]+[\r\n]"))
# The backend takes a mark of punctuation after a tab away from the word that it begins.
_TAB_MARK = Place(("\t",), re.compile(r"\t(?:[^\w\s]|_)(?=[A-Za-z]|[^\x00-\x7f])"))
_CL100K_PLACES = (_BLANK_LINE, _BLANK_LINE_CR, _TAB_MARK)


@cache
def _gpt2() -> SplitKind:
    # A tab before an apostrophe hides a contraction from the backend.
    places = (Place(("\t'",), re.compile("\t'")),)
    return SplitKind("gpt2", _odd_characters(""), places, re.compile(_WORD_START))


@cache
def _cl100k() -> SplitKind:
    return SplitKind("cl100k", _odd_characters(""), _CL100K_PLACES, re.compile(_WORD_START + _LINE_START))


@cache
def _o200k() -> SplitKind:
    # Combining marks belong to words here, which the backend sees otherwise after punctuation.
    return SplitKind("o200k", _odd_characters("M"), _CL100K_PLACES, re.compile(_WORD_START + _LINE_START))


@cache
def _deepseek3() -> SplitKind:
    # Outside ASCII too many combinations of scripts differ to tell them apart.
    odd = re.compile("[^\t\n\r -~\u2013\u2014\u2018\u2019\u201c\u201d\u2026]")
    return SplitKind("deepseek3", odd, _CL100K_PLACES, re.compile(_WORD_START + _LINE_START))


@cache
def _odd_characters(categories: str) -> re.Pattern[str]:
    """Characters that the backend files under another class than the reference does.

    They are white space other than blank, tab and line ends, control characters, letter-numbers, symbols that count
    as letters (circled ones), the long s (an s after an apostrophe to some), code points without a character (one that
    newer Unicode fills is named), and those beyond the 16-bit plane but emoji and Han; and the general categories
    given by their first letters.
    """
    odd = [*range(0x20), *range(0x7F, 0xA1), 0x17F, 0x88F, *range(0x24B6, 0x24EA)]
    for code in range(0xA1, 0x10000):
        category = unicodedata.category(chr(code))
        if category in {"Zs", "Zl", "Zp", "Nl", "Cn", "Cs"} or category[0] in categories:
            odd.append(code)
    odd = [code for code in odd if code not in {0x09, 0x0A, 0x0D}]
    beyond = [(0x10000, 0x1F189), (0x1FB00, 0x1FFFF), (0x2A6E0, 0x10FFFF)]
    spans = _ranges(sorted(set(odd))) + "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in beyond)
    return re.compile(f"[{spans}]")


def _ranges(codes: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for code in codes:
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(rf"\u{low:04x}-\u{high:04x}" for low, high in spans)
