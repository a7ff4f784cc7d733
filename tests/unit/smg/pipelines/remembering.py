"""What an answer is written to and made by, for tests: a sink and a worker that remember; and tokens in portions."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from smg.parsers.assemble import Assembled, Assembler
from smg.parsers.events import Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smg.parsers.events import Piece
    from smg.prompt.tokenizer import Tokenizer


class RememberingSink:
    """Joins what comes, and takes fragments or not; refuses what no sink may be given.

    Attributes:
        fragments: how many came.
        entries: the log-probabilities of all choices, in their order.
        shown_at: for each of them, how many characters of content its choice had when it was there.
        finishes: by choice.
        heads: one, or none before the answer is open.
    """

    def __init__(self, *, accepts_fragments: bool = True) -> None:
        self.accepts_fragments = accepts_fragments
        self.fragments = 0
        self.entries: list[Any] = []
        self.shown_at: list[int] = []
        self.finishes: dict[int, Any] = {}
        self.heads: list[Any] = []
        self.errors: list[Exception] = []
        self.is_closed = False
        self._assemblers: dict[int, Assembler] = {}

    @property
    def answers(self) -> dict[int, Assembled]:
        """What has come, by choice."""
        return {index: assembler.assembled() for index, assembler in self._assemblers.items()}

    @property
    def texts(self) -> dict[int, str]:
        """The content of the choices that have some."""
        return {index: each.content for index, each in self.answers.items() if each.content is not None}

    def summary(self) -> tuple[Any, ...]:
        """The first choice: content, reasoning, names and arguments of its calls, and why it ended."""
        answer = self.answers.get(0, Assembled(None, None, ()))
        calls = [(call.name, call.arguments) for call in answer.calls]
        return answer.content, answer.reasoning, calls, self.finishes[0].reason

    def open(self, head: Any) -> None:
        assert not self.heads
        self.heads.append(head)

    def fragment(self, index: int, fragment: bytes) -> None:
        self.fragments += 1
        self.pieces(index, [Content(json.loads(b'"%b"' % fragment))], ())

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        self.fragments += 1
        self.pieces(index, [Reasoning(json.loads(b'"%b"' % fragment))], ())

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Sequence[Any]) -> None:
        assert all(getattr(piece, "text", "x") for piece in pieces), "no empty pieces"
        self._assemblers.setdefault(index, Assembler()).add(pieces)
        if logprobs:
            self.entries += logprobs
            self.shown_at += [len(self.texts.get(index, ""))] * len(logprobs)

    def finish(self, index: int, finish: Any) -> None:
        assert index not in self.finishes
        self.finishes[index] = finish

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    def fail(self, error: Exception) -> None:
        self.errors.append(error)

    def flush(self) -> None:
        pass

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        return False


class RememberingWorker:
    """Remembers which sequences are aborted."""

    url = "grpc://w:1"

    def __init__(self) -> None:
        self.aborted: list[int] = []

    def abort(self, sequence: int) -> None:
        self.aborted.append(sequence)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(memoryview(tokenizer.encode(text)).cast("I"))


def portions(ids: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    """The ids in portions of these sizes, over and over."""
    rounds = itertools.cycle(sizes)
    while ids:
        size = next(rounds)
        yield ids[:size]
        ids = ids[size:]
