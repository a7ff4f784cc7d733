"""Generates more choices than are returned, and returns the likeliest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.sinks import ChoiceFinish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.sinks import AnswerHead, AnswerSink
    from smg_proto.common.v1 import common_pb2

NEVER = -float("inf")


class Candidate:
    """One choice that may be returned."""

    __slots__ = ("finish", "logprobs", "pieces")

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.logprobs: list[common_pb2.TokenLogprob] = []
        self.finish = ChoiceFinish("stop")

    def score(self, prompt_entries: int) -> float:
        """Mean log-probability of the generated tokens; one without any is the worst there is."""
        generated = self.logprobs[prompt_entries:]
        return sum(entry.logprob for entry in generated) / len(generated) if generated else NEVER


class BestOfSink:
    """Keeps the candidates of each prompt, and hands the best ones on when all have ended, the likeliest first.

    Candidates are numbered prompt by prompt. Of two that are equally likely the first counts.
    """

    accepts_fragments = False

    def __init__(
        self, sink: AnswerSink, prompt_entries: Sequence[int], *, best_of: int, n: int, logprobs: bool
    ) -> None:
        """Args:
        sink: gets the best ones.
        prompt_entries: for each prompt, how many log-probabilities of its own come before the generated ones.
        best_of: candidates of each prompt.
        n: how many of them are returned.
        logprobs: the client asked for log-probabilities.
        """
        self._sink = sink
        self._prompt_entries = prompt_entries
        self._best_of = best_of
        self._n = n
        self._logprobs = logprobs
        self._candidates = [Candidate() for _ in range(best_of * len(prompt_entries))]

    def open(self, head: AnswerHead) -> None:
        """Hand on."""
        self._sink.open(head)

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: nothing is streamed."""
        raise AssertionError(index, fragment)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Never called either."""
        raise AssertionError(index, fragment)

    def pieces(
        self, index: int, pieces: Sequence[Piece], logprobs: Sequence[common_pb2.TokenLogprob]
    ) -> None:
        """Keep."""
        candidate = self._candidates[index]
        candidate.pieces.extend(pieces)
        candidate.logprobs.extend(logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Keep."""
        self._candidates[index].finish = finish

    def close(self) -> None:
        """Choose."""
        for prompt, entries in enumerate(self._prompt_entries):
            first = prompt * self._best_of
            candidates = self._candidates[first : first + self._best_of]
            candidates.sort(key=lambda candidate: -candidate.score(entries))
            for place, candidate in enumerate(candidates[: self._n]):
                index = prompt * self._n + place
                self._sink.pieces(index, candidate.pieces, candidate.logprobs if self._logprobs else ())
                self._sink.finish(index, candidate.finish)
        self._sink.close()

    def fail(self, error: SmgError) -> None:
        """Hand on."""
        self._sink.fail(error)

    def flush(self) -> None:
        """Hand on."""
        self._sink.flush()
