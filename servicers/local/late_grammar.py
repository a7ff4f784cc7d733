"""A constraint that begins late: after a text of the output, for models that reason before they answer.

Until the text has come every token is free but two kinds: the model's end tokens, for the output would end without
its form; and tokens that hold the end of the text and more, for the form must begin where a token begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from servicers.local.grammar import Grammar


class Opening:
    """A text after which forms begin, and the tokens of one vocabulary that would run past its end."""

    def __init__(self, text: bytes, vocabulary: Sequence[bytes], eos_token_ids: Sequence[int]) -> None:
        """Looks at every token once: about 50 ms for 50,000.

        Args:
            text: at least one byte.
            vocabulary: the bytes of each token.
            eos_token_ids: ids that would end the output.
        """
        self.text = text
        self.vocabulary = vocabulary
        found: dict[int, list[int]] = {0: list(eos_token_ids)}
        for token, data in enumerate(vocabulary):
            for begun in _overruns(data, text):
                found.setdefault(begun, []).append(token)
        self._forbidden = [(text[:begun], np.array(ids, dtype=np.int64)) for begun, ids in found.items()]

    def allowed(self, tail: bytes) -> NDArray[np.bool_]:
        """Which tokens may come next, [vocabulary], when the output ends with `tail`."""
        mask = np.ones(len(self.vocabulary), dtype=np.bool_)
        for begun, ids in self._forbidden:
            if tail.endswith(begun):
                mask[ids] = False
        return mask


class LateGrammar:
    """As Grammar, from the end of a text on."""

    def __init__(self, grammar: Grammar, opening: Opening) -> None:
        self._grammar = grammar
        self._opening = opening
        self._tail = b""
        self.has_begun = False

    @property
    def is_finished(self) -> bool:
        """The output is complete and nothing can follow but an end token."""
        return self.has_begun and self._grammar.is_finished

    def allowed(self) -> NDArray[np.bool_]:
        """As Grammar.allowed."""
        return self._grammar.allowed() if self.has_begun else self._opening.allowed(self._tail)

    def accept(self, token: int) -> None:
        """As Grammar.accept."""
        if self.has_begun:
            self._grammar.accept(token)
        else:
            self.follow(token)

    def follow(self, token: int) -> bytes:
        """Take a token before the form has begun. Returns what it holds beyond the text."""
        opening = self._opening
        before, found, after = (self._tail + opening.vocabulary[token]).partition(opening.text)
        self.has_begun = bool(found)
        # As much as can be the beginning of the text.
        self._tail = (
            before[len(before) - len(opening.text) + 1 :] if len(before) >= len(opening.text) else before
        )
        return after


def _overruns(data: bytes, text: bytes) -> set[int]:
    """How much of the text may stand before a token, so that the token ends the text and goes on."""
    found: set[int] = set()
    place = data.find(text[-1])
    while 0 <= place < len(data) - 1:
        part = data[: place + 1]
        if part.endswith(text):
            found.add(0)
        elif text.endswith(part):
            found.add(len(text) - len(part))
        place = data.find(text[-1], place + 1)
    return found
