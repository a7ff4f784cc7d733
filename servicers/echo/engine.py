"""The echo engine: sequences that advance together, step by step, without a model.

Every session gets at most one event per step. A paced engine steps on a grid of fixed times; an unpaced one at
every turn of the event loop while there is work. Nothing happens when there is none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import TYPE_CHECKING

from servicers.base import CannotStart, Engine
from servicers.echo.directives import DirectiveFault, Failure
from servicers.echo.model import load_model
from servicers.echo.pacing import Pacing
from servicers.echo.prefix_cache import PrefixCache
from servicers.echo.rate_meter import RateMeter
from servicers.echo.step import StepColumns
from servicers.echo.work import SessionWork
from servicers.echo.workshop import INVALID_ARGUMENT, Workshop
from servicers.media_keys import keyed_ids
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from pathlib import Path

    from servicers.base import EngineOptions, EventSink
    from servicers.echo.sequence import EchoSequence

MAX_RUNNING = 8192
CACHE_TOKENS = 1 << 20
# An unpaced engine waits a little at each step for a router that has so many events to read.
_PATIENT_EVENTS = 64
_PATIENCE_S = 0.001


class EchoEngine(Engine):
    """Answers what the prompt's directives say. See servicers/echo/directives.py."""

    name = "echo"

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._max_running = options.max_running or MAX_RUNNING
        self._cache = PrefixCache(CACHE_TOKENS)
        self._workshops: dict[str, Workshop] = {}
        self._work: dict[EventSink, SessionWork] = {}
        self._watchers: set[EventSink] = set()
        self._waiting: OrderedDict[tuple[EventSink, int], EchoSequence] = OrderedDict()
        self._waiting_uncached = 0
        self._running = 0
        self._held_tokens = 0
        self._steps = 0

    async def start(self) -> None:
        """Load the tokenizers, in a thread."""
        self._loop = asyncio.get_running_loop()
        self._meter = RateMeter(self._loop.time())
        self._pacing = Pacing(self._options.step_seconds, self._step, self._loop)
        models = await asyncio.to_thread(_load_workshops, self._options, self._cache)
        self._workshops = {"": next(iter(models.values())), **models}

    async def stop(self) -> None:
        """Step no more."""
        self._pacing.stop()
        self._work.clear()
        self._waiting.clear()

    def describe(self) -> card_pb2.DescribeResponse:
        """The card of every model."""
        return card_pb2.DescribeResponse(
            models=[shop.model.card() for name, shop in self._workshops.items() if name],
            engine=self.name,
            engine_version=_version(),
            max_running=self._max_running,
        )

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Take work; aborts are answered at once, all else with a step."""
        work = self._work.get(session)
        if work is None:
            work = self._work[session] = SessionWork()
        now = self._loop.time()
        columns = StepColumns()
        due = inf
        for generate in request.generate:
            try:
                sequence = self._workshops[generate.model].sequence(generate)
            except DirectiveFault as fault:
                columns.fail(generate.sequence, Failure(INVALID_ARGUMENT, str(fault)))
                continue
            due = min(due, self._place(session, work, sequence, now))
        for kind in ("score", "embed", "classify"):
            for item in getattr(request, kind):
                work.one_shots[item.sequence] = getattr(self._workshops[item.model], kind)(item)
                due = now
        for number in request.abort:
            self._abort(session, work, number, columns)
        if columns.failed or columns.finished:
            self._emit(session, work, columns)
        self._pacing.wake(due)

    def close(self, session: EventSink) -> None:
        """Drop all work of a session at once."""
        self._watchers.discard(session)
        if not self._watchers:
            self._cache.changes = None
        work = self._work.pop(session, None)
        if work is None:
            return
        for sequence in work:
            self._forget(sequence)
        for key in [key for key in self._waiting if key[0] is session]:
            self._drop_waiting(key)
        # What waits may run now.
        self._pacing.wake(self._loop.time() if self._waiting else inf)

    def load(self) -> card_pb2.Load:
        """The load; every number is counted, none is made up."""
        return card_pb2.Load(
            running=self._running + sum(len(work.one_shots) for work in self._work.values()),
            waiting=len(self._waiting),
            waiting_uncached_tokens=self._waiting_uncached,
            kv_used_tokens=self._cache.used_tokens + self._held_tokens,
            kv_evictable_tokens=self._cache.used_tokens,
            kv_capacity_tokens=self._cache.capacity_tokens,
            tokens_per_second=self._meter.rate(self._loop.time()),
            steps=self._steps,
        )

    def flush_cache(self) -> int:
        """Forget the blocks that no running sequence uses."""
        dropped = self._cache.flush(run.blocks for work in self._work.values() for run in work)
        self._tell_cache()
        return dropped

    def watch_cache(self, session: EventSink) -> None:
        """Tell a session of the cache from now on."""
        self._watchers.add(session)
        if self._cache.changes is None:
            self._cache.changes = []

    def tokenizer_dir(self, model: str) -> Path | None:
        """The directory that the model was loaded from."""
        workshop = self._workshops.get(model)
        return workshop.model.directory if workshop else None

    def _step(self) -> None:
        now = self._loop.time()
        self._steps += 1
        self._admit_waiting(now)
        due = inf
        for session, work in list(self._work.items()):
            columns, ended = work.step(now)
            self._held_tokens += columns.generated_tokens
            self._meter.add(columns.generated_tokens, now)
            for sequence in ended:
                self._forget(sequence)
            self._emit(session, work, columns)
            due = min(due, work.next_due())
            if session.unsent_events > _PATIENT_EVENTS:
                due = max(due, now + _PATIENCE_S)
        if self._waiting and self._running < self._max_running:
            due = now
        self._tell_cache()
        self._pacing.wake(due)

    def _tell_cache(self) -> None:
        if self._cache.changes:
            event = engine_pb2.SessionEvent(cache=self._cache.changes)
            self._cache.changes = []
            for session in self._watchers:
                session.emit(event)

    def _emit(self, session: EventSink, work: SessionWork, columns: StepColumns) -> None:
        told = (self._running, len(self._waiting))
        load = None
        if told != work.told_load:
            work.told_load = told
            load = self.load()
        event = columns.event(load)
        if event is not None:
            session.emit(event)

    def _place(self, session: EventSink, work: SessionWork, sequence: EchoSequence, now: float) -> float:
        """Let a new sequence run, or wait. Returns when a step is due for it."""
        if self._waiting or self._running >= self._max_running:
            self._waiting[session, sequence.number] = sequence
            self._waiting_uncached += sequence.prompt_tokens - sequence.cached_tokens
            return inf
        return self._run(work, sequence, now)

    def _admit_waiting(self, now: float) -> None:
        while self._waiting and self._running < self._max_running:
            key = next(iter(self._waiting))
            session, _ = key
            self._run(self._work[session], self._drop_waiting(key), now)

    def _run(self, work: SessionWork, sequence: EchoSequence, now: float) -> float:
        sequence.cached_tokens = self._cache.cached_tokens(sequence.blocks)
        self._cache.add(sequence.blocks, keyed_ids(sequence.request), sequence.request.model)
        sequence.start_at(now)
        work.add(sequence)
        self._running += 1
        self._held_tokens += sequence.held_tokens
        return sequence.due

    def _abort(self, session: EventSink, work: SessionWork, number: int, columns: StepColumns) -> None:
        key = (session, number)
        sequence = work.remove(number)
        if sequence is not None:
            self._forget(sequence)
        elif key in self._waiting:
            sequence = self._drop_waiting(key)
        if sequence is not None:
            columns.finished.append(sequence.abort())
        elif work.one_shots.pop(number, None) is not None:
            columns.abort(number)

    def _forget(self, sequence: EchoSequence) -> None:
        self._running -= 1
        self._held_tokens -= sequence.held_tokens

    def _drop_waiting(self, key: tuple[EventSink, int]) -> EchoSequence:
        sequence = self._waiting.pop(key)
        self._waiting_uncached -= sequence.prompt_tokens - sequence.cached_tokens
        return sequence


def _load_workshops(options: EngineOptions, cache: PrefixCache) -> dict[str, Workshop]:
    """Load every model. Blocks."""
    paths, ids = options.model_paths, options.model_ids
    if not paths:
        raise CannotStart(
            "the echo engine needs --model-path DIR, a directory with a tokenizer.json (--engine local needs none: a "
            "small model comes along)"
        )
    names: list[str | None] = [name or None for name in ids] or [None] * len(paths)
    if len(paths) == 1:
        paths *= len(names)
    workshops: dict[str, Workshop] = {}
    for path, name in zip(paths, names, strict=True):
        model = load_model(path, name, options.max_context)
        if model.id in workshops:
            raise CannotStart(f"two models have the name {model.id!r}; give each its own --model-id")
        workshops[model.id] = Workshop(model, cache, is_endless=options.echo_endless)
    return workshops


def _version() -> str:
    try:
        return version("smg")
    except PackageNotFoundError:
        return "unknown"
