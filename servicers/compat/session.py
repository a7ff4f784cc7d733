"""One session towards the engine for all calls of a protocol that has a call per request.

The engine sees an ordinary router; what it emits is dealt out to the calls that wait for it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from servicers.checks import RESOURCE_EXHAUSTED
from servicers.compat.waiting import Waiting
from servicers.intake import Intake
from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from servicers.base import Engine
    from servicers.limits import SessionLimits
    from servicers.models import ServedModel

    Work = work_pb2.Generate | work_pb2.Score | work_pb2.Embed | work_pb2.Classify
    End = work_pb2.Finished | work_pb2.Failed | work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified

_ENDS = ("finished", "failed", "scored", "embedded", "classified")


class Part(NamedTuple):
    """What an event brings to one sequence of a call.

    Attributes:
        choice: place of the sequence among those of its call.
        started: its prompt is computed.
        tokens: new ones.
        logprobs: of the new tokens.
        end: how it ended.
    """

    choice: int
    started: work_pb2.Started | None = None
    tokens: Sequence[int] = ()
    logprobs: Sequence[work_pb2.TokenLogprobs] = ()
    end: End | None = None


class Call:
    """The sequences of one call, and what has come for them."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.live = {number: index for index, number in enumerate(numbers)}
        """Sequences that have not ended, by number."""
        self.parts: deque[Part] = deque()
        self._waiting = Waiting()

    def put(self, part: Part) -> None:
        """Add what has come."""
        self.parts.append(part)
        self._waiting.wake()

    async def take(self) -> list[Part]:
        """All that has come; waits for it. Empty when everything has ended and been taken."""
        while not self.parts:
            if not self.live:
                return []
            await self._waiting.wait()
        taken = list(self.parts)
        self.parts.clear()
        return taken


class CallSession:
    """The engine's EventSink. On the event loop only."""

    def __init__(self, engine: Engine, models: Mapping[str, ServedModel], limits: SessionLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._live: set[int] = set()
        self._intake = Intake(models, limits.max_sequences, self._live, set())
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def unsent_events(self) -> int:
        """Parts that the slowest of all calls has not taken."""
        return max((len(call.parts) for call in self._calls.values()), default=0)

    @property
    def running(self) -> int:
        """Sequences that have not ended."""
        return len(self._calls)

    def submit(self, work: Sequence[Work]) -> Call:
        """Hand the work of one call to the engine; it is numbered here. What is wrong ends in the call."""
        request = engine_pb2.SessionRequest()
        for each in work:
            each.sequence = next(self._numbers)
            getattr(request, type(each).__name__.lower()).append(each)
        numbers = [each.sequence for each in work]
        call = Call(numbers)
        for number in numbers:
            self._calls[number] = call
        self._idle.clear()
        accepted, failed, _ = self._intake.sort(request)
        for each in failed:
            self._end(each)
        if accepted is not None:
            self._engine.submit(self, accepted)
        return call

    def abort(self, call: Call) -> None:
        """Nobody waits for a call any more: stop what has not ended of it."""
        numbers = list(call.live)
        call.live.clear()
        for number in numbers:
            self._forget(number)
        if numbers:
            self._engine.submit(self, engine_pb2.SessionRequest(abort=numbers))

    def stop(self, call: Call) -> None:
        """Stop what has not ended of a call; it still hears the ends."""
        if call.live:
            self._engine.submit(self, engine_pb2.SessionRequest(abort=call.live))

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Deal an event out. Part of EventSink."""
        for started in event.started:
            self._put(started.sequence, started=started)
        rows = {entry.sequence: entry.tokens for entry in event.logprobs}
        at = 0
        counts = event.count or itertools.repeat(1)
        for sequence, count in zip(event.sequence, counts, strict=False):
            tokens = event.token[at : at + count]
            at += count
            self._put(sequence, tokens=tokens, logprobs=rows.get(sequence, ()))
        for name in _ENDS:
            for end in getattr(event, name):
                self._end(end)

    async def drain(self, grace_s: float) -> None:
        """Take no new work and wait for what runs; what runs after so long is aborted."""
        self._intake.is_draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            self.cut()

    def cut(self) -> None:
        """Fail everything now."""
        for number in list(self._calls):
            self._end(
                work_pb2.Failed(
                    sequence=number, code=14, message="the engine is shutting down", is_retryable=True
                )
            )

    def _put(
        self,
        number: int,
        *,
        started: work_pb2.Started | None = None,
        tokens: Sequence[int] = (),
        logprobs: Sequence[work_pb2.TokenLogprobs] = (),
    ) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        if len(call.parts) >= self._limits.max_unsent_events:
            message = f"the client does not read: {len(call.parts)} messages wait for it"
            refusal = work_pb2.Failed(sequence=number, code=RESOURCE_EXHAUSTED, message=message)
            self._end(refusal)
            self._engine.submit(self, engine_pb2.SessionRequest(abort=[number]))
            return
        call.put(Part(call.live[number], started, tokens, logprobs))

    def _end(self, end: End) -> None:
        call = self._calls.get(end.sequence)
        if call is not None:
            self._forget(end.sequence)
            call.put(Part(call.live.pop(end.sequence), end=end))
        else:
            self._live.discard(end.sequence)

    def _forget(self, number: int) -> None:
        self._calls.pop(number, None)
        self._live.discard(number)
        if not self._calls:
            self._idle.set()
