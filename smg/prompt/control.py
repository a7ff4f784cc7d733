"""Decides which added tokens steer the model, and finds them in rendered text.

A control token is an added token that is special, or that the chat template writes itself, or that looks like markup
(`<think>`, `<tool_call>`, `[INST]`) without being an HTML element: vocabularies such as Gemma's carry `<table>` and the
like as ordinary content. White space is never one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.prompt.packed import pack_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokenizers import Tokenizer as HfTokenizer

# What Rust's char::is_whitespace says, as `tokenizers` strips around a token; str.strip() alone takes four more.
_WHITE_SPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    + ("\u2028\u2029\u202f\u205f\u3000")
)
_MARKUP = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
# fmt: off
_HTML_ELEMENTS = frozenset((
    "a", "b", "blockquote", "br", "caption", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li",
    "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "u", "ul",
))
# fmt: on


@dataclass(frozen=True, slots=True)
class ControlToken:
    """An added token that only the template may write.

    Attributes:
        is_special: `skip_special_tokens` leaves it out of decoded text.
        strips_left: white space before it is not tokenized. strips_right: nor after it.
        single_word: it counts only between word boundaries. normalized: it is looked for in normalized text.
    """

    id: int
    text: str
    is_special: bool
    strips_left: bool
    strips_right: bool
    single_word: bool
    normalized: bool


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """The added tokens of a tokenizer, told apart."""

    controls: tuple[ControlToken, ...]
    content: tuple[str, ...]  # those that text may spell


def added_tokens_of(reference: HfTokenizer, template_text: str) -> AddedTokens:
    """Sort the added tokens; template_text is what the templates write literally."""
    controls: list[ControlToken] = []
    content: list[str] = []
    for token, added in sorted(reference.get_added_tokens_decoder().items()):
        text = added.content
        if not text.isspace() and (added.special or text in template_text or _is_markup(text)):
            strips = added.lstrip, added.rstrip
            controls.append(
                ControlToken(token, text, added.special, *strips, added.single_word, added.normalized)
            )
        else:
            content.append(text)
    return AddedTokens(tuple(controls), tuple(content))


def _is_markup(text: str) -> bool:
    return _MARKUP.fullmatch(text) is not None and text.strip("</>") not in _HTML_ELEMENTS


def any_of(texts: Iterable[str]) -> str:
    """Regex of the longest of the texts at the leftmost place; matches nothing when there are none."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"


class ControlCuts:
    """Cuts rendered text at its control tokens. Immutable."""

    def __init__(self, controls: Iterable[ControlToken]) -> None:
        controls = list(controls)
        self._pattern = re.compile(f"({any_of(control.text for control in controls)})")
        self._left = frozenset(control.text for control in controls if control.strips_left)
        self._right = frozenset(control.text for control in controls if control.strips_right)
        self.ids = {control.text: pack_ids([control.id]) for control in controls}

    def cut(self, text: str) -> Iterator[str]:
        """Text, token, text, token, …, text: always odd in number, texts may be empty; one at a time."""
        done, strips = 0, False
        for match in self._pattern.finditer(text):
            token = match[0]
            piece = text[done : match.start()]
            if strips:
                piece = piece.lstrip(_WHITE_SPACE)
            yield piece.rstrip(_WHITE_SPACE) if token in self._left else piece
            yield token
            done, strips = match.end(), token in self._right
        yield text[done:].lstrip(_WHITE_SPACE) if strips else text[done:]

    def cut_at_once(self, text: str) -> list[str] | None:
        """What `cut` gives as a list, made faster; None where white space beside tokens has to go."""
        return None if self._left or self._right else self._pattern.split(text)

    def spells(self, text: str) -> bool:
        """Whether a control token is spelled in the text."""
        return self._pattern.search(text) is not None
