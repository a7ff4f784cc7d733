"""Several engines as one: each serves its own models, a request goes to the engine that has the model it names."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from servicers.base import CannotStart, Engine
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from servicers.base import EventSink

_log = logging.getLogger(__name__)
_KINDS = ("generate", "score", "embed", "classify")
_SUMMED = (
    "running", "waiting", "waiting_uncached_tokens", "kv_used_tokens", "kv_capacity_tokens", "kv_evictable_tokens",
    "tokens_per_second", "steps",
)  # fmt: skip


class SeveralEngines(Engine):
    """See servicers.base.Engine. The first engine's first model is the one that a request without a name means."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Args: at least one, none started."""
        self._engines = engines
        self._by_model: Mapping[str, Engine] = {}
        self._description = card_pb2.DescribeResponse()
        self._sessions: dict[EventSink, _Session] = {}
        self.name = engines[0].name

    async def start(self) -> None:
        """Start all of them beside each other."""
        outcomes = await asyncio.gather(*(each.start() for each in self._engines), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        by_model: dict[str, Engine] = {"": self._engines[0]}
        first = self._engines[0].describe()
        description = card_pb2.DescribeResponse(engine=first.engine, engine_version=first.engine_version)
        for engine in self._engines:
            described = engine.describe()
            description.max_running += described.max_running
            for card in described.models:
                if card.id in by_model:
                    raise CannotStart(f"two models have the name {card.id!r}; give each its own")
                by_model[card.id] = engine
                description.models.append(card)
        self._by_model, self._description = by_model, description

    async def stop(self) -> None:
        """Stop all of them."""
        for engine in self._engines:
            try:
                await engine.stop()
            except Exception:  # noqa: BLE001 - the others are stopped all the same
                _log.exception("an engine did not stop in order")

    def describe(self) -> card_pb2.DescribeResponse:
        """All models."""
        return self._description

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Share the work out; aborts go to all."""
        sink = self._sink(session)
        parts: dict[Engine, engine_pb2.SessionRequest] = {}
        for kind in _KINDS:
            for item in getattr(request, kind):
                part = parts.setdefault(self._by_model[item.model], engine_pb2.SessionRequest())
                getattr(part, kind).append(item)
        for engine in self._engines if request.abort else parts:
            part = parts.get(engine) or engine_pb2.SessionRequest()
            part.abort.extend(request.abort)
            engine.submit(sink, part)

    def close(self, session: EventSink) -> None:
        """Close it at all of them."""
        sink = self._sessions.pop(session, None)
        if sink is not None:
            for engine in self._engines:
                engine.close(sink)

    def watch_cache(self, session: EventSink) -> None:
        """Tell it of every engine's cache."""
        for engine in self._engines:
            engine.watch_cache(self._sink(session))

    def load(self) -> card_pb2.Load:
        """All of them together."""
        total = card_pb2.Load()
        for each in [engine.load() for engine in self._engines]:
            for name in _SUMMED:
                setattr(total, name, getattr(total, name) + getattr(each, name))
        return total

    async def flush_cache(self) -> int:
        """Flush all of them."""
        tokens = 0
        for engine in self._engines:
            flushed = engine.flush_cache()
            tokens += flushed if isinstance(flushed, int) else await flushed
        return tokens

    def tokenizer_dir(self, model: str) -> Path | None:
        """Of the engine that has the model."""
        engine = self._by_model.get(model)
        return engine.tokenizer_dir(model) if engine is not None else None

    def _sink(self, session: EventSink) -> _Session:
        sink = self._sessions.get(session)
        if sink is None:
            sink = self._sessions[session] = _Session(session, self)
        return sink


class _Session:
    """A session as one of the engines sees it: the load that goes out is that of all."""

    def __init__(self, session: EventSink, engines: SeveralEngines) -> None:
        self._session = session
        self._engines = engines

    @property
    def unsent_events(self) -> int:
        """As the session's."""
        return self._session.unsent_events

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Pass it on."""
        if event.HasField("load"):
            event.load.CopyFrom(self._engines.load())
        self._session.emit(event)
