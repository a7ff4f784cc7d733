"""Generates more choices than are returned, and returns the likeliest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.logprobs import TokenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs
    from smg.pipelines.sinks import AnswerHead, AnswerSink, ChoiceFinish

NEVER = -float("inf")


class Candidate:
    """One choice that may be returned."""

    __slots__ = ("_entries", "_prompt_entries", "_sum")

    def __init__(self, prompt_entries: int) -> None:
        """Args: prompt_entries: how many log-probabilities of the prompt come before the generated ones."""
        self._prompt_entries = prompt_entries
        self._entries = 0
        self._sum = 0.0

    def add(self, numbers: Sequence[float]) -> None:
        """Take more log-probabilities."""
        start = max(0, self._prompt_entries - self._entries)
        self._entries += len(numbers)
        for number in numbers[start:]:
            self._sum += number

    @property
    def score(self) -> float:
        """Mean log-probability of the generated tokens; one without any is the worst there is."""
        generated = self._entries - self._prompt_entries
        return self._sum / generated if generated > 0 else NEVER


class BestOfSink:
    """Hands all candidates on, and says at the end which ones of each prompt are returned, the likeliest first.

    Candidates are numbered prompt by prompt. Of two that are equally likely the first counts.
    """

    accepts_fragments = False

    def __init__(
        self, sink: AnswerSink, prompt_entries: Sequence[int], *, best_of: int, n: int, logprobs: bool
    ) -> None:
        """Args:
        sink: collects them.
        prompt_entries: for each prompt, how many log-probabilities of its own come before the generated ones.
        best_of: candidates of each prompt.
        n: how many of them are returned.
        logprobs: the client asked for log-probabilities.
        """
        self._sink = sink
        self._best_of = best_of
        self._n = n
        self._logprobs = logprobs
        self._candidates = [Candidate(entries) for entries in prompt_entries for _ in range(best_of)]

    def open(self, head: AnswerHead) -> None:
        """Hand on."""
        self._sink.open(head)

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: nothing is streamed."""
        raise AssertionError(index, fragment)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Never called either."""
        raise AssertionError(index, fragment)

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Count, and hand on."""
        if logprobs:
            self._candidates[index].add(logprobs.form(TokenRows.numbers))
        self._sink.pieces(index, pieces, logprobs if self._logprobs else ())

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Hand on."""
        self._sink.finish(index, finish)

    def close(self) -> None:
        """Choose."""
        kept: list[int] = []
        for first in range(0, len(self._candidates), self._best_of):
            candidates = range(first, first + self._best_of)
            likeliest = sorted(candidates, key=lambda index: -self._candidates[index].score)
            kept += likeliest[: self._n]
        self._sink.keep(kept)
        self._sink.close()

    def fail(self, error: SmgError) -> None:
        """Hand on."""
        self._sink.fail(error)

    def flush(self) -> None:
        """Hand on."""
        self._sink.flush()

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """Hand on."""
        return self._sink.is_behind(go_on)

    def keep(self, indexes: Sequence[int]) -> None:
        """Never called: this is what chooses."""
        raise AssertionError(indexes)
