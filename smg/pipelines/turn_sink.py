"""Where one turn of a response goes: an AnswerSink that makes items of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.responses.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs, TokenRows
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg.responses.output import Output
    from smg.responses.shapes import Json


class TurnSink:
    """One turn.

    Attributes:
        turn: its items.
        head: what is known since the first event; None before.
        finish_reason: why the model stopped; empty while it runs.
        error: what the turn failed with after its first event; None while all is well.
    """

    def __init__(self, output: Output, on_open: Callable[[AnswerHead], None], *, with_logprobs: bool) -> None:
        """Args: on_open is told of the first event, before anything of the turn is written."""
        stream = output.stream
        self._outlet = stream.outlet if stream is not None else None
        self._on_open = on_open
        self.turn = Turn(output, with_logprobs=with_logprobs)
        self.head: AnswerHead | None = None
        self.finish_reason = ""
        self.error: SmgError | None = None
        self.accepts_fragments = stream is not None

    def open(self, head: AnswerHead) -> None:
        """The first event is here."""
        self.head = head
        self._on_open(head)

    def fragment(self, index: int, fragment: bytes) -> None:
        """More of the message."""
        del index
        self.turn.fragment(fragment)
        self.flush()

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """More of the reasoning."""
        del index
        self.turn.reasoning_fragment(fragment)
        self.flush()

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """More of the turn."""
        del index
        self.turn.add(pieces, _entries(logprobs) if logprobs else None)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """The model has stopped."""
        del index
        self.finish_reason = finish.reason

    def close(self) -> None:
        """The counts are final."""

    def fail(self, error: SmgError) -> None:
        """The turn cannot be completed."""
        self.error = error

    def flush(self) -> None:
        """Write what has gathered."""
        if self._outlet is not None:
            self._outlet.flush()

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client does not read."""
        return self._outlet is not None and self._outlet.is_behind(go_on)

    def keep(self, indexes: Sequence[int]) -> None:
        """Never called: a response has one choice."""
        raise AssertionError(indexes)


def _entries(rows: TokenRows) -> list[Json]:
    return [
        {
            "token": entry.token,
            "logprob": entry.logprob,
            "bytes": list(entry.bytes),
            "top_logprobs": [
                {"token": top.token, "logprob": top.logprob, "bytes": list(top.bytes)}
                for top in entry.top_logprobs
            ],
        }
        for entry in rows
    ]
