"""All work of one engine, in SGLang's thread: a task for each sequence, and one event per session and turn of the loop.

SGLang wakes each request's task once per output; the tasks only add to their session's turn, and what one turn of the
loop has gathered is told together in the next. A sequence is over when it is taken out of its session, and only who
takes it out tells its end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from servicers.sglang.answers import Answer, refusal_of
from servicers.sglang.requests import Refused, generate_call
from servicers.sglang.scoring import classify, embed, score
from servicers.sglang.turn import Turn
from servicers.token_bytes import ID_BYTES
from smg_proto.engine.v1 import card_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from servicers.base import EventSink
    from servicers.sglang.cards import ServedByUs
    from servicers.sglang.engine import EngineApi, SglangPackage
    from smg_proto.engine.v1 import engine_pb2

    Events = list[tuple[EventSink, engine_pb2.SessionEvent]]
    Deliver = Callable[[Events], None]

_log = logging.getLogger(__name__)

_POLL_S = 0.25


@dataclass(slots=True, eq=False)
class _Job:
    """A sequence that has not ended."""

    answer: Answer | None
    tokens: int
    is_running: bool
    task: asyncio.Task[None] | None = None

    @property
    def held_tokens(self) -> int:
        return self.tokens if self.answer is None else self.answer.held_tokens


@dataclass(slots=True, eq=False)
class _Session:
    """What one router has in work."""

    sink: EventSink
    jobs: dict[int, _Job] = field(default_factory=dict[int, _Job])
    turn: Turn | None = None
    told: tuple[int, int] = (0, 0)


class Work:
    """Every method is called in SGLang's thread, but for `load`, which is replaced and never changed."""

    def __init__(
        self, engine: EngineApi, package: SglangPackage, served: ServedByUs, deliver: Deliver
    ) -> None:
        """Take the engine.

        Args:
            engine: has started.
            package: makes the requests that the engine takes as objects.
            served: what it serves.
            deliver: takes the events of a turn.
        """
        self.engine = engine
        self._package = package
        self._served = served
        self._deliver = deliver
        self._sessions: dict[EventSink, _Session] = {}
        self._changed: list[_Session] = []
        self._names = 0
        self._live = self._running = 0
        self._held_tokens = 0
        self._steps = 0
        self._polled = card_pb2.Load()
        self._poll_mark: object = None
        self._poller: asyncio.Task[None] | None = None
        self.load = card_pb2.Load()

    def submit(self, sink: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Take new work, then aborts."""
        session = self._sessions.get(sink)
        if session is None:
            session = self._sessions[sink] = _Session(sink)
        for each in request.generate:
            self._start_generation(session, each)
        for each in request.score:
            tokens = (len(each.prefix_ids) + sum(len(suffix.ids) for suffix in each.suffixes)) // ID_BYTES
            self._start(session, each.sequence, tokens, partial(self._score, session, each))
        for each in request.embed:
            self._start(
                session, each.sequence, len(each.input_ids) // ID_BYTES, partial(self._embed, session, each)
            )
        for each in request.classify:
            tokens = len(each.input_ids) // ID_BYTES
            self._start(session, each.sequence, tokens, partial(self._classify, session, each))
        for number in request.abort:
            self._abort(session, number)
        self._count()

    def close(self, sink: EventSink) -> None:
        """Abort everything of a session and tell nothing."""
        session = self._sessions.pop(sink, None)
        if session is None:
            return
        for number in list(session.jobs):
            job = self._take_out(session, number)
            if job is not None and job.task is not None:
                job.task.cancel()
        self._count()

    def _start_generation(self, session: _Session, request: work_pb2.Generate) -> None:
        number = request.sequence
        try:
            call = generate_call(request, self._next_name(), self._served)
        except Refused as refused:
            self._turn_of(session).fail(number, refused.refusal)
            return
        answer = Answer(request)
        self._start(session, number, 0, partial(self._generate, session, number, answer, call), answer)

    def _start(
        self,
        session: _Session,
        number: int,
        tokens: int,
        work: Callable[[], Coroutine[Any, Any, None]],
        answer: Answer | None = None,
    ) -> None:
        job = session.jobs[number] = _Job(answer, tokens, is_running=answer is None)
        self._live += 1
        self._running += job.is_running
        job.task = asyncio.get_running_loop().create_task(self._guarded(session, number, work))
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    def _abort(self, session: _Session, number: int) -> None:
        job = self._take_out(session, number)
        if job is None:
            return
        if job.task is not None:
            # The engine's own code aborts the request in the scheduler when what waits for it is cancelled.
            job.task.cancel()
        finished = (
            job.answer.aborted()
            if job.answer
            else work_pb2.Finished(sequence=number, reason=work_pb2.FINISH_REASON_ABORT)
        )
        self._turn_of(session).finished.append(finished)

    async def _guarded(
        self, session: _Session, number: int, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever SGLang raises ends one sequence
            refusal = refusal_of(error)
            if refusal.is_retryable:
                _log.warning("sequence %d failed: %s", number, refusal.message)
            if self._take_out(session, number) is not None:
                self._turn_of(session).fail(number, refusal)

    async def _generate(self, session: _Session, number: int, answer: Answer, call: dict[str, Any]) -> None:
        jobs = session.jobs
        async for output in await self.engine.async_generate(**call):
            # Also when it was aborted: a cancelled task may have an output in hand already.
            job = jobs.get(number)
            if job is None:
                return
            is_last = answer.take(output, self._turn_of(session))
            if not job.is_running:
                job.is_running = True
                self._running += 1
            if is_last:
                self._take_out(session, number)

    async def _score(self, session: _Session, request: work_pb2.Score) -> None:
        scored = await score(self.engine, request, self._next_name())
        self._end(session, request.sequence, "scored", scored)

    async def _embed(self, session: _Session, request: work_pb2.Embed) -> None:
        embedded = await embed(self.engine, self._package, request, self._next_name())
        self._end(session, request.sequence, "embedded", embedded)

    async def _classify(self, session: _Session, request: work_pb2.Classify) -> None:
        classified = await classify(self.engine, self._package, request, self._next_name())
        self._end(session, request.sequence, "classified", classified)

    def _end(self, session: _Session, number: int, kind: str, result: object) -> None:
        if self._take_out(session, number) is not None:
            getattr(self._turn_of(session), kind).append(result)

    def _take_out(self, session: _Session, number: int) -> _Job | None:
        """The sequence is over. None when it was before: then its end is told."""
        job = session.jobs.pop(number, None)
        if job is not None:
            self._live -= 1
            self._running -= job.is_running
        return job

    def _next_name(self) -> str:
        # Of one length: in the scheduler an abort reaches every request whose name begins with the one it gives.
        self._names += 1
        return f"smg-{self._names:016x}"

    def _turn_of(self, session: _Session) -> Turn:
        turn = session.turn
        if turn is None:
            turn = session.turn = Turn()
            if not self._changed:
                # After every task that this turn of the loop has woken.
                asyncio.get_running_loop().call_soon(self._tell)
            self._changed.append(session)
        return turn

    def _tell(self) -> None:
        """Tell what the last turn of the loop has brought."""
        self._steps += 1
        load = self._count()
        events: Events = []
        for session in self._changed:
            turn, session.turn = session.turn, None
            if turn is None or session.sink not in self._sessions:
                continue
            counts = (load.running, load.waiting)
            is_news = counts != session.told
            session.told = counts
            events.append((session.sink, turn.event(load if is_news else None)))
        self._changed.clear()
        self._deliver(events)

    def _count(self) -> card_pb2.Load:
        """Make a new load record."""
        polled, waiting = self._polled, self._live - self._running
        capacity = polled.kv_capacity_tokens
        used = max(polled.kv_used_tokens, self._held_tokens)
        self.load = card_pb2.Load(
            running=self._running,
            waiting=waiting,
            waiting_uncached_tokens=polled.waiting_uncached_tokens if waiting else 0,
            kv_used_tokens=min(used, capacity) if capacity else used,
            kv_capacity_tokens=capacity,
            tokens_per_second=polled.tokens_per_second if self._running else 0.0,
            steps=self._steps,
        )
        return self.load

    async def _poll(self) -> None:
        """Look at what the schedulers tell of themselves while there is work."""
        while self._live:
            try:
                loads = await self.engine.tokenizer_manager.get_loads()
            except Exception as error:  # noqa: BLE001 - work goes on without
                _log.debug("no load from the scheduler: %s", error)
                return
            self._polled = card_pb2.Load(
                waiting_uncached_tokens=sum(each.num_waiting_uncached_tokens for each in loads),
                kv_used_tokens=sum(each.num_used_tokens for each in loads),
                kv_capacity_tokens=sum(each.max_total_num_tokens for each in loads),
                tokens_per_second=sum(each.gen_throughput for each in loads),
            )
            self._held_tokens = sum(
                job.held_tokens for session in self._sessions.values() for job in session.jobs.values()
            )
            mark = [each.timestamp for each in loads]
            if mark != self._poll_mark:
                # A scheduler that computes a long prompt brings no tokens; it lives all the same.
                self._poll_mark = mark
                self._steps += 1
            self._count()
            await asyncio.sleep(_POLL_S)
        self._held_tokens = 0
        self._count()
