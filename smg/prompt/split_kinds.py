"""Names the pre-tokenizers that the fast backend knows, and for each the texts on which it is not exact.

The backend (tokie) splits text with code written by hand, which departs from the reference in a few places. They were
found by comparing both on every string of up to four characters over one character of each Unicode class, and on every
code point in 30 surroundings (docs/adr/0002-fast-tokenizer.md). A guard is a regex that matches wherever such a place
could be; what it matches goes to the reference. It may match too much, never too little.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

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


_O200K = "|".join([_o200k_word("*", "+"), _o200k_word("+", "*"), r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"]) + _TAIL

# Only where a text is cut so that the part a guard matched can be encoded apart: every pre-tokenizer below starts a new
# word at the blank between something printed and a letter, whatever stands around.
_WORD_START = r"(?<=[!-~])(?= [A-Za-z])"
# GPT-2 decides how to split blank lines by what follows them; the others end every run of line ends.
_LINE_START = r"|(?<=\n)(?=\S)"


@dataclass(frozen=True)
class SplitKind:
    """A pre-tokenizer and what has to be kept from the fast backend.

    Attributes:
        name: for logs and tests.
        guard: matches every place where the backend may differ from the reference.
        cut: matches, without consuming, where a text may be cut and encoded in parts.
    """

    name: str
    guard: re.Pattern[str]
    cut: re.Pattern[str]


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
            return {_LLAMA3: _cl100k, _QWEN2: _cl100k, _QWEN35: _cl100k, _O200K: _o200k}.get(regex, _unknown)()
        case _:
            return None


def _unknown() -> None:
    return None


@cache
def _gpt2() -> SplitKind:
    # A tab before an apostrophe hides a contraction from the backend.
    return _kind("gpt2", "\t", r"(?<=\t)'", "", _WORD_START)


@cache
def _cl100k() -> SplitKind:
    # A tab takes the following mark of punctuation away from its word; a blank line with blanks in it is split
    # otherwise; the long s counts as an s after an apostrophe.
    special = r"(?<=\t)(?:[^\w\s]|_)|(?<=[\r\n])[ \t]+[\r\n]|(?<=')\u017f"
    return _kind("cl100k", "\t\r\n'", special, "", _WORD_START + _LINE_START)


@cache
def _o200k() -> SplitKind:
    # As cl100k; and combining marks belong to words here, which the backend sees otherwise after punctuation.
    special = r"(?<=\t)(?:[^\w\s]|_)|(?<=[\r\n])[ \t]+[\r\n]|(?<=')\u017f"
    return _kind("o200k", "\t\r\n'", special, "M", _WORD_START + _LINE_START)


def _kind(name: str, starts: str, special: str, categories: str, cut: str) -> SplitKind:
    """Build the guard: one leading character class, which makes the search fast, then what makes the place special."""
    odd = _odd_characters(categories)
    return SplitKind(name, re.compile(f"[{starts}{odd}](?:(?<=[{odd}])|{special})"), re.compile(cut))


@cache
def _odd_characters(categories: str) -> str:
    """Inside of a character class: characters that the backend files under another class than the reference does.

    They are white space other than blank, tab and line ends, control characters, letter-numbers, symbols that count
    as letters (circled ones), code points without a character, and those beyond the 16-bit plane but emoji and Han;
    and the general categories given by their first letters.
    """
    odd = [*range(0x24B6, 0x24EA)]
    for code in range(0x10000):
        category = unicodedata.category(chr(code))
        is_space = category in {"Zs", "Zl", "Zp"} and code != 0x20
        is_control = category == "Cc" and code not in {0x09, 0x0A, 0x0D}
        if is_space or is_control or category in {"Nl", "Cn", "Cs"} or category[0] in categories:
            odd.append(code)
    beyond = [(0x10000, 0x1F189), (0x1FB00, 0x1FFFF), (0x2A6E0, 0x10FFFF)]
    return _ranges(sorted(odd)) + "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in beyond)


def _ranges(codes: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for code in codes:
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(rf"\u{low:04x}-\u{high:04x}" for low, high in spans)
