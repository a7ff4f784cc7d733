"""Chooses the words by which a model answers, each one token of its own: yes and no, letters, pairs of letters, digits.

A label counts where it stands right after the prompt: the prompt's tokens must stay as they are with the label behind
them, and exactly one must be added, a different one for each label. Whether that is so depends on the tokenizer and on
how the template ends its prompts, so it is found out once per model.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from smg.decisions.kinds import NOUL_LABELS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LETTERS = tuple(string.ascii_uppercase)
DIGITS = tuple(string.digits)
PAIRS = tuple(first + second for first, second in product(LETTERS, LETTERS))
# SentencePiece tokenizers keep a word and the blank before it together.
_VARIANTS = ("", " ")


class LabelSet(NamedTuple):
    """Labels of one alphabet that work, in order.

    Attributes:
        names: as the prompt shows them.
        ids: token ids, in step.
        missing: those of the alphabet that are not one distinct token.
    """

    names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one model.

    Attributes:
        noul: yes and no. letters: A to Z. digits: 0 to 9. pairs: AA to ZZ, as far as they are one token.
    """

    noul: LabelSet = field(default_factory=LabelSet)
    letters: LabelSet = field(default_factory=LabelSet)
    digits: LabelSet = field(default_factory=LabelSet)
    pairs: LabelSet = field(default_factory=LabelSet)

    @property
    def faults(self) -> tuple[str, ...]:
        """What does not work, in words; empty where all kinds of question can be asked."""
        said = "are not one distinct token each after the chat prompt"
        return tuple(
            f"the labels {', '.join(known.missing[:10])} {said}"
            for known in (self.noul, self.letters, self.digits)
            if known.missing
        )

    @property
    def max_options(self) -> int:
        """Most options that one choice may have."""
        return max(len(self.pairs.ids), 0 if self.letters.missing else len(LETTERS))

    def for_question(self, kind: Kind, options: int) -> LabelSet:
        """The labels of a question with so many options, in order. Set and span ask for yes or no.

        Beyond 26 options all of them get pairs: labels of one question must be of one kind.
        """
        if kind is Kind.SCORE:
            return _first(self.digits, options)
        if kind is Kind.CHOICE:
            return _first(self.letters if options <= len(LETTERS) else self.pairs, options)
        return self.noul


def find_labels(token_after_prompt: Callable[[str], int | None]) -> Labels:
    """Find out which labels work.

    Args:
        token_after_prompt: the one token that a text adds to a prompt; None where it adds several, or changes others.
    """

    def alphabet(names: tuple[str, ...]) -> LabelSet:
        found = [
            _checked(names, lambda name, lead=lead: token_after_prompt(lead + name)) for lead in _VARIANTS
        ]
        return min(found, key=lambda known: len(known.missing))

    pairs = alphabet(PAIRS)
    return Labels(
        alphabet(NOUL_LABELS), alphabet(LETTERS), alphabet(DIGITS), LabelSet(pairs.names, pairs.ids)
    )


def _checked(names: Iterable[str], token: Callable[[str], int | None]) -> LabelSet:
    ids: dict[int, str] = {}
    missing: list[str] = []
    for name in names:
        found = token(name)
        if found is None or found in ids:
            missing.append(name)
        else:
            ids[found] = name
    return LabelSet(tuple(ids.values()), tuple(ids), tuple(missing))


def _first(known: LabelSet, count: int) -> LabelSet:
    return LabelSet(known.names[:count], known.ids[:count], known.missing)
