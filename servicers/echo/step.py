"""Gathers what one step brings to one session, in the columns of its event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicers.echo.directives import RETRYABLE
from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.echo.directives import Failure
    from smg_proto.engine.v1 import card_pb2


class StepColumns:
    """The parts of a SessionEvent, as lists: a protobuf list costs more to append to than to fill at once."""

    __slots__ = (
        "sequence", "token", "count", "logprobs", "started", "finished", "failed",
        "scored", "embedded", "classified", "generated_tokens",
    )  # fmt: skip

    def __init__(self, sequence: list[int], token: list[int]) -> None:
        """Start with the sequences that got one token each."""
        self.sequence = sequence
        self.token = token
        self.generated_tokens = len(token)
        self.count: list[int] | None = None
        self.logprobs: list[work_pb2.StepLogprobs] = []
        self.started: list[work_pb2.Started] = []
        self.finished: list[work_pb2.Finished] = []
        self.failed: list[work_pb2.Failed] = []
        self.scored: list[work_pb2.Scored] = []
        self.embedded: list[work_pb2.Embedded] = []
        self.classified: list[work_pb2.Classified] = []

    def add_tokens(self, sequence: int, tokens: Sequence[int]) -> None:
        """Add the new tokens of a sequence that is not there yet; at least one."""
        if len(tokens) != 1 and self.count is None:
            self.count = [1] * len(self.sequence)
        if self.count is not None:
            self.count.append(len(tokens))
        self.sequence.append(sequence)
        self.token += tokens

    def fail(self, sequence: int, failure: Failure) -> None:
        """Add the end of a sequence that fails."""
        self.failed.append(
            work_pb2.Failed(
                sequence=sequence,
                code=failure.code,
                message=failure.message,
                is_retryable=failure.code in RETRYABLE,
            )
        )

    def abort(self, sequence: int) -> None:
        """Add the end of work that was stopped before its step came."""
        self.finished.append(work_pb2.Finished(sequence=sequence, reason=work_pb2.FINISH_REASON_ABORT))

    def event(self, load: card_pb2.Load | None) -> engine_pb2.SessionEvent | None:
        """The event; None when nothing happened."""
        event = engine_pb2.SessionEvent(sequence=self.sequence, token=self.token, load=load)
        is_empty = not self.sequence and load is None
        for name in (
            "count",
            "logprobs",
            "started",
            "finished",
            "failed",
            "scored",
            "embedded",
            "classified",
        ):
            entries = getattr(self, name)
            if entries:
                getattr(event, name).extend(entries)
                is_empty = False
        return None if is_empty else event
