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
        "lane_sequence", "lane_token", "sequence", "token", "count", "logprobs", "started", "finished", "failed",
        "scored", "embedded", "classified", "generated_tokens",
    )  # fmt: skip

    def __init__(self, lane_sequence: Sequence[int] = (), lane_token: Sequence[int] = ()) -> None:
        """Start with the sequences that got one token each; their lists are not changed."""
        self.lane_sequence = lane_sequence
        self.lane_token = lane_token
        self.generated_tokens = len(lane_token)
        self.sequence: list[int] = []
        self.token: list[int] = []
        self.count: list[int] = []
        self.logprobs: list[work_pb2.StepLogprobs] = []
        self.started: list[work_pb2.Started] = []
        self.finished: list[work_pb2.Finished] = []
        self.failed: list[work_pb2.Failed] = []
        self.scored: list[work_pb2.Scored] = []
        self.embedded: list[work_pb2.Embedded] = []
        self.classified: list[work_pb2.Classified] = []

    def add_tokens(self, sequence: int, tokens: Sequence[int]) -> None:
        """Add the new tokens of a sequence that is not there yet; at least one."""
        self.sequence.append(sequence)
        self.token += tokens
        self.count.append(len(tokens))

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
        event = engine_pb2.SessionEvent(sequence=self.lane_sequence, token=self.lane_token, load=load)
        is_empty = load is None and not self.lane_sequence
        if self.sequence:
            is_empty = False
            event.sequence.extend(self.sequence)
            event.token.extend(self.token)
            if len(self.token) != len(self.sequence):
                event.count.extend([1] * len(self.lane_sequence))
                event.count.extend(self.count)
        for name in ("logprobs", "started", "finished", "failed", "scored", "embedded", "classified"):
            entries = getattr(self, name)
            if entries:
                getattr(event, name).extend(entries)
                is_empty = False
        return None if is_empty else event
