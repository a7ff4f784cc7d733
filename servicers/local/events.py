"""Gathers what one step did and makes one SessionEvent per session of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from servicers.base import EventSink
    from servicers.local.decoding import Outcome
    from servicers.local.refusal import RefusalError
    from servicers.local.sequence import GenerateJob, Job
    from smg_proto.engine.v1 import card_pb2

Events = list[tuple["EventSink", engine_pb2.SessionEvent]]


class _Columns:
    """The event of one session while it grows. Plain lists: a message is filled fastest at once."""

    __slots__ = ("embedded", "failed", "finished", "logprobs", "scored", "sequence", "started", "token")

    def __init__(self) -> None:
        self.sequence: list[int] = []
        self.token: list[int] = []
        self.logprobs: list[work_pb2.StepLogprobs] = []
        self.started: list[work_pb2.Started] = []
        self.finished: list[work_pb2.Finished] = []
        self.failed: list[work_pb2.Failed] = []
        self.scored: list[work_pb2.Scored] = []
        self.embedded: list[work_pb2.Embedded] = []


class Outbox:
    """The events of the current step."""

    def __init__(self) -> None:
        self._columns: dict[EventSink, _Columns] = {}

    def _of(self, session: EventSink) -> _Columns:
        columns = self._columns.get(session)
        if columns is None:
            columns = self._columns[session] = _Columns()
        return columns

    def started(self, job: GenerateJob) -> None:
        """Its prompt is computed."""
        self._of(job.session).started.append(job.started())

    def outcome(self, job: GenerateJob, outcome: Outcome) -> None:
        """It got a token and has perhaps ended."""
        columns = self._of(job.session)
        if job.is_streamed:
            # `count` stays empty: each entry is one token.
            columns.sequence.append(job.number)
            columns.token.append(outcome.token)
            if outcome.entry is not None:
                columns.logprobs.append(work_pb2.StepLogprobs(sequence=job.number, tokens=[outcome.entry]))
        if outcome.finished is not None:
            columns.finished.append(outcome.finished)

    def finished(self, session: EventSink, event: work_pb2.Finished) -> None:
        """It ended without a token."""
        self._of(session).finished.append(event)

    def failed(self, session: EventSink, number: int, refusal: RefusalError) -> None:
        """It was refused or lost."""
        failed = work_pb2.Failed(
            sequence=number, code=refusal.code, message=refusal.message, is_retryable=refusal.is_retryable
        )
        self._of(session).failed.append(failed)

    def scored(self, job: Job, event: work_pb2.Scored) -> None:
        """Its scores are ready."""
        self._of(job.session).scored.append(event)

    def embedded(self, job: Job, event: work_pb2.Embedded) -> None:
        """Its embedding is ready."""
        self._of(job.session).embedded.append(event)

    def drop(self, session: EventSink) -> None:
        """Nothing is for this session any more."""
        self._columns.pop(session, None)

    def take(self, load: card_pb2.Load | None, sessions: Iterable[EventSink]) -> Events:
        """The events of the step, one per session.

        Args:
            load: to tell, or None.
            sessions: who hears of the load.
        """
        if load is not None:
            for session in sessions:
                self._of(session)
        columns, self._columns = self._columns, {}
        return [(session, _event(each, load)) for session, each in columns.items()]


def _event(columns: _Columns, load: card_pb2.Load | None) -> engine_pb2.SessionEvent:
    return engine_pb2.SessionEvent(
        sequence=columns.sequence,
        token=columns.token,
        logprobs=columns.logprobs,
        started=columns.started,
        finished=columns.finished,
        failed=columns.failed,
        scored=columns.scored,
        embedded=columns.embedded,
        load=load,
    )
