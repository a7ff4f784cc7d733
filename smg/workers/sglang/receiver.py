"""Receives the messages of one Generate call, and tells the listeners of its sequences.

A call generates one sequence, or all n choices of a prompt; each answer says by its index which one it is of.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from smg.errors import INTERNAL, EngineError, InternalError
from smg.workers.failures import RETRYABLE_CODES
from smg.workers.sglang.answers import SequenceAnswer
from smg.workers.sglang.plain import plain_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.workers.base import GenerateListener
    from smg.workers.http2.headers import Status
    from smg_proto.engine.v1 import work_pb2

_log = logging.getLogger(__name__)


class Wire(NamedTuple):
    """How the messages of a protocol of this shape are read.

    Attributes:
        parse: a whole response; what it holds is named as SGLang's.
        plain_ids: the ids of a usual chunk, from its bytes; None for others.
        answer: makes what keeps one sequence.
    """

    parse: Callable[[bytes], Any]
    plain_ids: Callable[[bytes], list[int] | None]
    answer: Callable[..., SequenceAnswer]


SGLANG = Wire(sglang_pb2.GenerateResponse.FromString, plain_ids, SequenceAnswer)


class Progress:
    """Counts what shows that an engine is alive. One per worker, shared by its calls."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class CallReceiver:
    """The Receiver of one call (smg.workers.http2.calls)."""

    def __init__(
        self,
        requests: Sequence[work_pb2.Generate],
        listeners: Sequence[GenerateListener],
        progress: Progress,
        on_over: Callable[[int], None],
        on_outcome: Callable[[SmgError | None], None] = lambda _: None,
        wire: Wire = SGLANG,
    ) -> None:
        """Take whom to call.

        Args:
            requests: the sequences.
            listeners: one per request.
            progress: counts what arrives.
            on_over: called once for each sequence before its listener hears the end, with its number.
            on_outcome: told how the engine ended each, and of one failure for a call that failed (Worker.on_outcome).
            wire: the protocol's messages.
        """
        is_shared = len(requests) > 1
        self._answers = [
            wire.answer(request, listener, counts_ids=is_shared)
            for request, listener in zip(requests, listeners, strict=True)
        ]
        self._alone = None if is_shared else self._answers[0]
        self._parse, self._plain_ids = wire.parse, wire.plain_ids
        self._progress = progress
        self._on_over = on_over
        self._on_outcome = on_outcome
        self._has_ended = self._has_tokens = False

    @property
    def is_settled(self) -> bool:
        """The engine works on none of its sequences any more."""
        return self._has_ended or all(answer.is_answered for answer in self._answers)

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """Everything that came in one read is one step of each sequence."""
        self._progress.steps += 1
        alone = self._alone
        try:
            if alone is None or not alone.is_plain or not self._take_plain(alone, messages):
                self._take(messages)
        except Exception as error:  # noqa: BLE001 - what a server sends must not break the connection
            _log.error("an answer could not be read; its sequences are over", exc_info=error)
            self._fail_all(_unreadable(error))

    def on_end(self, status: Status) -> None:
        """The call is over. With the ends of its sequences it is no news."""
        self._has_ended = True
        late_code = "worker_stream_failed" if self._has_tokens else None
        if status.code:
            error = EngineError(
                status.message or f"the engine failed with status {status.code}",
                engine_code=status.code,
                can_retry=status.code in RETRYABLE_CODES,
                code=late_code,
            )
        else:
            # A cut answer must not pass for a whole one.
            error = EngineError(
                "the engine ended the stream before the sequence had ended",
                engine_code=INTERNAL,
                code=late_code or "no_responses_from_server",
            )
        if not all(answer.is_over for answer in self._answers):
            self._on_outcome(error)
        self._fail_all(error)

    def abandon(self, sequence: int) -> None:
        """Nobody wants to hear of a sequence any more."""
        answer = self._of_sequence(sequence)
        answer.is_over = answer.is_abandoned = True

    def give_up(self, sequence: int, error: SmgError) -> None:
        """Tell a listener that its sequence is lost. The call is the caller's to end."""
        answer = self._of_sequence(sequence)
        answer.is_over = True
        _tell_failure(answer, error)

    def _take_plain(self, alone: SequenceAnswer, messages: Sequence[bytes]) -> bool:
        """Take messages that hold nothing but ids, as nearly all do. Returns False for others, untouched."""
        ids: list[int] = []
        for message in messages:
            new = self._plain_ids(message)
            if new is None:
                return False
            ids += new
        if alone.is_over:
            return True
        if not alone.is_streamed:
            alone.ids += ids
        elif ids:
            alone.told += len(ids)
            try:
                alone.listener.on_step(ids, (), None)
            except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                self._broke(alone, error)
        return True

    def _take(self, messages: Sequence[bytes]) -> None:
        alone = self._alone
        for message in messages:
            response = self._parse(message)
            if response.HasField("chunk"):
                self._has_tokens = True
                answer = alone or self._of_index(response.chunk.index)
                if not answer.is_over:
                    self._guarded(answer, partial(answer.take_chunk, response.chunk))
            elif response.HasField("complete"):
                self._has_tokens = True
                self._end(response.complete)
        for answer in self._answers:
            if answer.ids and answer.is_streamed and not answer.is_over:
                try:
                    answer.tell()
                except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                    self._broke(answer, error)

    def _end(self, complete: sglang_pb2.GenerateComplete) -> None:
        answer = self._ended_answer(complete.index)
        if answer is None:
            return
        answer.is_answered = True
        if not answer.is_over:
            self._guarded(answer, partial(self._tell_end, answer, complete))

    def _tell_end(self, answer: SequenceAnswer, complete: sglang_pb2.GenerateComplete) -> None:
        answer.take_complete(complete)
        if answer.is_over:
            return
        if complete.finish_reason == "error":
            if answer.ids and answer.is_streamed:
                # What came before the error is the listener's, whether or not it came in the same read.
                answer.tell()
            error = EngineError(
                "the engine ended the sequence with the reason 'error'",
                engine_code=INTERNAL,
                code="worker_stream_failed",
            )
            self._on_outcome(error)
            if not answer.is_over:
                self._fail(answer, error)
            return
        answer.is_over = True
        self._on_outcome(None)
        self._on_over(answer.sequence)
        answer.tell_end(complete)

    def _of_sequence(self, sequence: int) -> SequenceAnswer:
        return next(answer for answer in self._answers if answer.sequence == sequence)

    def _of_index(self, index: int) -> SequenceAnswer:
        if index >= len(self._answers):
            raise ValueError(f"an answer of index {index} to {len(self._answers)} choices")
        return self._answers[index]

    def _ended_answer(self, index: int) -> SequenceAnswer | None:
        """The sequence that a final message is of; None for one that has ended before."""
        answer = self._alone or self._of_index(index)
        if not answer.is_answered:
            return answer
        if answer.is_streamed:
            return None
        # Servicers number chunks alone: whole answers all have index 0, and come in order.
        return next((each for each in self._answers if not each.is_answered), None)

    def _guarded(self, answer: SequenceAnswer, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - one listener must not harm the others
            self._broke(answer, error)

    def _broke(self, answer: SequenceAnswer, error: Exception) -> None:
        """What an answer brought could not be taken, or its listener raised: the sequence is over."""
        _log.error("answer of sequence %d not taken; the sequence is over", answer.sequence, exc_info=error)
        if not answer.is_over:
            answer.is_over = True
            self._on_over(answer.sequence)
        if not answer.is_abandoned:
            _tell_failure(answer, _unreadable(error))

    def _fail_all(self, error: SmgError) -> None:
        for answer in self._answers:
            # A listener that is told may abandon others.
            if not answer.is_over:
                self._fail(answer, error)

    def _fail(self, answer: SequenceAnswer, error: SmgError) -> None:
        answer.is_over = True
        self._on_over(answer.sequence)
        _tell_failure(answer, error)


def _unreadable(error: Exception) -> InternalError:
    return InternalError(f"the engine's answer could not be taken: {error}")


def _tell_failure(answer: SequenceAnswer, error: SmgError) -> None:
    try:
        answer.listener.on_failed(error)
    except Exception:  # noqa: BLE001 - one listener must not harm the others
        _log.exception("listener of sequence %d raised when told of its failure", answer.sequence)
