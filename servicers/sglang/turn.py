"""Gathers what one turn of SGLang's loop brings, and makes one event per session of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.checks import Refusal
    from smg_proto.engine.v1 import card_pb2


class Turn:
    """What one session gets. Plain lists: a message is filled fastest at once."""

    __slots__ = (
        "sequence", "token", "count", "logprobs", "started", "finished", "failed", "scored", "embedded", "classified",
    )  # fmt: skip

    def __init__(self) -> None:
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

    def add_tokens(self, number: int, tokens: Sequence[int]) -> None:
        """Add the new tokens of a sequence; at least one."""
        self.sequence.append(number)
        self.token += tokens
        self.count.append(len(tokens))

    def fail(self, number: int, refusal: Refusal) -> None:
        """Add the end of a sequence that was refused or lost."""
        self.failed.append(
            work_pb2.Failed(
                sequence=number,
                code=refusal.code,
                message=refusal.message,
                is_retryable=refusal.is_retryable,
            )
        )

    def event(self, load: card_pb2.Load | None) -> engine_pb2.SessionEvent:
        """The event, with the load where there is one to tell."""
        event = engine_pb2.SessionEvent(sequence=self.sequence, token=self.token, load=load)
        if len(self.token) != len(self.sequence):
            event.count.extend(self.count)
        for name in ("logprobs", "started", "finished", "failed", "scored", "embedded", "classified"):
            entries = getattr(self, name)
            if entries:
                getattr(event, name).extend(entries)
        return event
