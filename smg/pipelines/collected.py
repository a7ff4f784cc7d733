"""Collects an answer that is given as a whole: what both fronts share before they write it in their own form."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Generic, TypeVar

from smg.errors import InternalError
from smg.parsers.assemble import Assembler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.parsers.assemble import Assembled
    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs, TokenRows
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish

KeptT = TypeVar("KeptT")


class CollectedChoice(Generic[KeptT]):
    """What has come of one choice.

    Attributes:
        kept: log-probabilities, in the front's own form.
        finish: why it ended; None while it runs.
    """

    __slots__ = ("_assembler", "finish", "kept")

    def __init__(self, kept: KeptT) -> None:
        self._assembler = Assembler()
        self.kept = kept
        self.finish: ChoiceFinish | None = None

    def add(self, pieces: Sequence[Piece]) -> None:
        """Take more of it."""
        self._assembler.add(pieces)

    def answer(self) -> Assembled:
        """Content, reasoning and calls."""
        return self._assembler.assembled()


class CollectingSink(abc.ABC, Generic[KeptT]):
    """Keeps everything until it is asked for.

    Log-probabilities are kept in the form that the front writes, made as they come: at the end they are too many.
    """

    accepts_fragments = False

    def __init__(self) -> None:
        self._head: AnswerHead | None = None
        self._choices: dict[int, CollectedChoice[KeptT]] = {}
        self._error: SmgError | None = None
        self._is_complete = False

    @abc.abstractmethod
    def _begin(self) -> KeptT:
        """What keeps the log-probabilities of a choice."""

    @abc.abstractmethod
    def _add(self, kept: KeptT, rows: TokenRows) -> None:
        """Keep more of them, in the form that the front writes."""

    def open(self, head: AnswerHead) -> None:
        """Keep the head."""
        self._head = head

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: only streams take fragments."""
        raise AssertionError(index, fragment)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Never called either."""
        raise AssertionError(index, fragment)

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Collect."""
        collected = self._collected(index)
        collected.add(pieces)
        if logprobs:
            self._add(collected.kept, logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Note why a choice ended."""
        self._collected(index).finish = finish

    def keep(self, indexes: Sequence[int]) -> None:
        """Forget all other choices."""
        self._choices = {place: self._collected(index) for place, index in enumerate(indexes)}

    def close(self) -> None:
        """Note that all is here."""
        self._is_complete = True

    def fail(self, error: SmgError) -> None:
        """Note what went wrong."""
        self._error = error

    def flush(self) -> None:
        """Nothing gathers."""

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """Never: nobody reads before the end."""
        del go_on
        return False

    def _collected(self, index: int) -> CollectedChoice[KeptT]:
        collected = self._choices.get(index)
        if collected is None:
            collected = self._choices[index] = CollectedChoice(self._begin())
        return collected

    def outcome(self) -> tuple[AnswerHead, list[tuple[int, CollectedChoice[KeptT]]]]:
        """Head and choices, by index.

        Raises:
            SmgError: the answer failed.
        """
        if self._error is not None:
            raise self._error
        if self._head is None or not self._is_complete:
            raise InternalError("the answer ended before it was complete")
        return self._head, sorted(self._choices.items())
