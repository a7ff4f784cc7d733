"""Lays out a question as the user message of a chat: the state first, then the question, its options, how to answer.

The state comes first so that all questions about it share the longest possible beginning, which is computed once.
STEM, right after the state, ends where no tokenizer joins what stands on both sides (between a letter and a colon): the
ids of the beginning are then the same whatever is asked. Probabilities depend on every word here: whoever changes one
counts PROMPT_VERSION up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.decisions.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT_VERSION = 1
STEM = "\n\nQuestion"

_ANSWER_WITH = {
    Kind.NOUL: "Answer with only yes or no.",
    Kind.CHOICE: "Answer with only the letter of the best option.",
    Kind.SCORE: "Answer with only the number of the best level.",
}
_ANSWER_WITH_TEXT = {
    Kind.NOUL: "Answer with only yes or no.",
    Kind.CHOICE: "Answer with only the best option.",
    Kind.SCORE: "Answer with only the best level.",
}
_UNASKED = {
    Kind.NOUL: "Which of these describes the text above?",
    Kind.CHOICE: "Which option fits the text above best?",
    Kind.SCORE: "Which level fits the text above best?",
}


class ShownOption(NamedTuple):
    """An option as the prompt shows it.

    Attributes:
        name: its name; empty for a level, which has only a description.
        description: what it means; None where the name says it.
    """

    name: str
    description: str | None = None

    @property
    def text(self) -> str:
        """Both in a line."""
        if not self.description:
            return self.name
        return f"{self.name} - {self.description}" if self.name else self.description


def noul_text(instructions: str, yes: str | None = None, no: str | None = None) -> str:
    """What follows the stem: is it true? Outcomes that are described stand below."""
    asked = f"Is the following true? {instructions}" if instructions.strip() else _UNASKED[Kind.NOUL]
    lines = [f": {asked}"]
    lines += [f"{name}: {said}" for name, said in (("yes", yes), ("no", no)) if said]
    return "\n".join([*lines, _ANSWER_WITH[Kind.NOUL]])


def choice_text(instructions: str, options: Sequence[ShownOption], labels: Sequence[str] | None) -> str:
    """What follows the stem: which option? One line for each, with its label; without labels its own text answers."""
    return _with_options(Kind.CHOICE, instructions, options, labels)


def score_text(instructions: str, levels: Sequence[ShownOption], labels: Sequence[str] | None) -> str:
    """What follows the stem: which level? One line for each, with its number; without labels its own text answers."""
    return _with_options(Kind.SCORE, instructions, levels, labels)


def set_text(instructions: str, label: ShownOption) -> str:
    """What follows the stem: does one label of a set apply?"""
    asked = f"{instructions.strip()} " if instructions.strip() else ""
    said = f": {asked}Does this apply: {label.name}?"
    return _with_meaning(said, label.description)


def span_text(instructions: str, label: ShownOption, quoted: str) -> str:
    """What follows the stem: is a quoted place of the text what one label names?"""
    asked = f"{instructions.strip()} " if instructions.strip() else ""
    said = f': {asked}Is "{quoted}" in the text above this: {label.name}?'
    return _with_meaning(said, label.description)


def _with_meaning(said: str, description: str | None) -> str:
    meaning = f"\n{description}" if description else ""
    return f"{said}{meaning}\n{_ANSWER_WITH[Kind.NOUL]}"


def _with_options(
    kind: Kind, instructions: str, options: Sequence[ShownOption], labels: Sequence[str] | None
) -> str:
    lines = [f": {instructions.strip() or _UNASKED[kind]}"]
    if labels is None:
        lines += [f"- {option.text}" for option in options]
        return "\n".join([*lines, _ANSWER_WITH_TEXT[kind]])
    lines += [f"{label}: {option.text}" for label, option in zip(labels, options, strict=True)]
    return "\n".join([*lines, _ANSWER_WITH[kind]])
