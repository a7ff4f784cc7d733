"""Turns a session's events into calls of listeners: the router's hottest loop.

An event carries one token of every running sequence, so what is done per token decides the router's cost: columns
become lists once, look-ups are bound outside the loop, and no message field is read inside it.
"""

from __future__ import annotations

import itertools
import logging
import sys
from array import array
from typing import TYPE_CHECKING

from smg.errors import EngineError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from smg.errors import SmgError
    from smg.workers.base import GenerateListener, ResultListener
    from smg_proto.engine.v1 import engine_pb2, work_pb2

_log = logging.getLogger(__name__)


def ids_from_bytes(ids: bytes) -> array[int]:
    """Unsigned 32-bit little-endian ids as an array."""
    numbers = array("I")
    numbers.frombytes(ids)
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


class Listeners:
    """Who listens to which sequence of one worker."""

    def __init__(
        self, abort: Callable[[int], None], on_outcome: Callable[[SmgError | None], None] = lambda _: None
    ) -> None:
        """Take who is called.

        Args:
            abort: tells the engine to stop a sequence whose listener broke.
            on_outcome: told how sequences end, before their listeners are (Worker.on_outcome).
        """
        self._abort = abort
        self._on_outcome = on_outcome
        self._generate: dict[int, GenerateListener] = {}
        self._result: dict[int, ResultListener] = {}

    def __len__(self) -> int:
        return len(self._generate) + len(self._result)

    def add_generate(self, sequence: int, listener: GenerateListener) -> None:
        """Listen to a sequence that is about to be submitted."""
        self._generate[sequence] = listener

    def add_result(self, sequence: int, listener: ResultListener) -> None:
        """Listen to a request that has one answer."""
        self._result[sequence] = listener

    def sequences(self) -> Sequence[int]:
        """The sequences that somebody listens to."""
        return [*self._generate, *self._result]

    def remove(self, sequence: int) -> bool:
        """Forget a listener. Returns False for a sequence that has none."""
        if self._generate.pop(sequence, None) is not None:
            return True
        return self._result.pop(sequence, None) is not None

    def dispatch(self, event: engine_pb2.SessionEvent) -> None:
        """Call the listeners of everything that an event holds. Sequences without a listener are ignored."""
        if started := event.started:
            self._dispatch_started(started)
        if event.count or event.finished or event.logprobs:
            self._dispatch_steps(event)
        else:
            get = self._generate.get
            # Lists of Python ints cost less than the containers' own iteration; zip makes the tuples.
            for sequence, ids in zip(list(event.sequence), zip(list(event.token)), strict=True):
                listener = get(sequence)
                if listener is not None:
                    try:
                        listener.on_step(ids, (), None)
                    except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                        self._broke(sequence, error)
        if event.failed:
            self._dispatch_failed(event.failed)
        for results in (event.scored, event.embedded, event.classified):
            if results:
                self._dispatch_results(results)

    def fail_all(self, error: SmgError) -> None:
        """The worker is lost: every listener is told, and forgotten first.

        A listener may abort others while it is told; those are then not called.
        """
        if self:
            # One loss, whatever it took along.
            self._on_outcome(error)
        for listeners in (self._generate, self._result):
            while listeners:
                sequence, listener = listeners.popitem()
                _tell_failure(sequence, listener, error)

    def _dispatch_started(self, started: Iterable[work_pb2.Started]) -> None:
        get = self._generate.get
        for entry in started:
            listener = get(entry.sequence)
            if listener is not None:
                try:
                    listener.on_started(entry)
                except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                    self._broke(entry.sequence, error)

    def _dispatch_steps(self, event: engine_pb2.SessionEvent) -> None:
        """The columns of an event in which something ends, or somebody asked for log-probabilities."""
        finished = {entry.sequence: entry for entry in event.finished}
        logprobs = {entry.sequence: entry.tokens for entry in event.logprobs}
        get = self._generate.get
        for sequence, ids in zip(list(event.sequence), _pieces(event), strict=True):
            listener = get(sequence)
            if listener is None:
                finished.pop(sequence, None)
            elif sequence in finished:
                self._end(sequence, listener, ids, logprobs.get(sequence, ()), finished.pop(sequence))
            else:
                try:
                    listener.on_step(ids, logprobs.get(sequence, ()) if logprobs else (), None)
                except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                    self._broke(sequence, error)
        for sequence, ending in finished.items():
            listener = get(sequence)
            if listener is not None:
                ids = ids_from_bytes(ending.token_ids) if ending.token_ids else ()
                self._end(sequence, listener, ids, ending.logprobs, ending)

    def _end(
        self,
        sequence: int,
        listener: GenerateListener,
        ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        ending: work_pb2.Finished,
    ) -> None:
        del self._generate[sequence]
        self._on_outcome(None)
        try:
            listener.on_step(ids, logprobs, ending)
        except Exception as error:  # noqa: BLE001 - one listener must not harm the others
            _complain(sequence, listener, error)

    def _dispatch_failed(self, failed: Iterable[work_pb2.Failed]) -> None:
        for entry in failed:
            listener = self._generate.pop(entry.sequence, None) or self._result.pop(entry.sequence, None)
            if listener is not None:
                error = EngineError(entry.message, engine_code=entry.code, can_retry=entry.is_retryable)
                self._on_outcome(error)
                _tell_failure(entry.sequence, listener, error)

    def _dispatch_results(
        self, results: Iterable[work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified]
    ) -> None:
        for result in results:
            listener = self._result.pop(result.sequence, None)
            if listener is not None:
                self._on_outcome(None)
                try:
                    listener.on_result(result)
                except Exception as error:  # noqa: BLE001 - one listener must not harm the others
                    _complain(result.sequence, listener, error)

    def _broke(self, sequence: int, error: Exception) -> None:
        """The listener of a running sequence raised. One that has aborted itself before is only logged."""
        listener = self._generate.pop(sequence, None)
        self._abort(sequence)
        _complain(sequence, listener, error)


def _complain(sequence: int, listener: GenerateListener | ResultListener | None, error: Exception) -> None:
    """Log that a listener raised, and tell it that it failed, so that nobody waits for it for ever."""
    _log.error("listener of sequence %d raised; the sequence is over", sequence, exc_info=error)
    if listener is not None:
        _tell_failure(sequence, listener, InternalError(f"the answer could not be written: {error}"))


def _pieces(event: engine_pb2.SessionEvent) -> Iterable[Sequence[int]]:
    """The new tokens of each entry.

    Raises:
        ValueError: there are more or fewer tokens than the counts say.
    """
    tokens: list[int] = list(event.token)
    if not event.count:
        return zip(tokens)
    ends = list(itertools.accumulate(event.count))
    if ends[-1] != len(tokens):
        raise ValueError(f"{len(tokens)} tokens, {ends[-1]} by their counts")
    return [tokens[begin:end] for begin, end in itertools.pairwise([0, *ends])]


def _tell_failure(sequence: int, listener: GenerateListener | ResultListener, error: SmgError) -> None:
    try:
        listener.on_failed(error)
    except Exception:  # noqa: BLE001 - one listener must not harm the others
        _log.exception("listener of sequence %d raised when told of its failure", sequence)
