"""Collects an answer that is given as a whole: what both fronts share before they write it in their own form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InternalError
from smg.parsers.assemble import Assembler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.parsers.assemble import Assembled
    from smg.parsers.events import Piece
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg_proto.common.v1 import common_pb2


class CollectedChoice:
    """What has come of one choice.

    Attributes:
        logprobs: log-probabilities, in order; empty where none were asked for.
        finish: why it ended; None while it runs.
    """

    __slots__ = ("_assembler", "finish", "logprobs")

    def __init__(self) -> None:
        self._assembler = Assembler()
        self.logprobs: list[common_pb2.TokenLogprob] = []
        self.finish: ChoiceFinish | None = None

    def add(self, pieces: Sequence[Piece]) -> None:
        """Take more of it."""
        self._assembler.add(pieces)

    def answer(self) -> Assembled:
        """Content, reasoning and calls."""
        return self._assembler.assembled()


class CollectingSink:
    """Keeps everything until it is asked for."""

    accepts_fragments = False

    def __init__(self) -> None:
        self._head: AnswerHead | None = None
        self._choices: dict[int, CollectedChoice] = {}
        self._error: SmgError | None = None
        self._is_complete = False

    def open(self, head: AnswerHead) -> None:
        """Keep the head."""
        self._head = head

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: only streams take fragments."""
        raise AssertionError(index, fragment)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Never called either."""
        raise AssertionError(index, fragment)

    def pieces(
        self, index: int, pieces: Sequence[Piece], logprobs: Sequence[common_pb2.TokenLogprob]
    ) -> None:
        """Collect."""
        collected = self._collected(index)
        collected.add(pieces)
        collected.logprobs.extend(logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Note why a choice ended."""
        self._collected(index).finish = finish

    def close(self) -> None:
        """Note that all is here."""
        self._is_complete = True

    def fail(self, error: SmgError) -> None:
        """Note what went wrong."""
        self._error = error

    def flush(self) -> None:
        """Nothing gathers."""

    def _collected(self, index: int) -> CollectedChoice:
        return self._choices.setdefault(index, CollectedChoice())

    def outcome(self) -> tuple[AnswerHead, list[tuple[int, CollectedChoice]]]:
        """Head and choices, by index.

        Raises:
            SmgError: the answer failed.
        """
        if self._error is not None:
            raise self._error
        if self._head is None or not self._is_complete:
            raise InternalError("the answer ended before it was complete")
        return self._head, sorted(self._choices.items())
