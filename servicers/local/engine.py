"""The embedded engine: a Llama-family model on torch behind the servicer's Engine interface.

Nothing here computes. Requests become commands for the compute thread, and what a step brings comes back in one
call on the event loop. This module imports no torch, so that the process answers health checks while torch loads.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from servicers.base import CannotStart, Engine
from servicers.local.compute_thread import ComputeThread
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servicers.base import EventSink
    from servicers.local.events import Events
    from servicers.local.loading import LoadedEngine
    from servicers.local.settings import LocalSettings
    from servicers.local.stepper import Stepper

    Load = Callable[[LocalSettings, Callable[[Callable[[], None]], None]], LoadedEngine]


def _load(settings: LocalSettings, call_later: Callable[[Callable[[], None]], None]) -> LoadedEngine:
    from servicers.local.loading import load_engine

    return load_engine(settings, call_later)


class LocalEngine(Engine):
    """See servicers.base.Engine."""

    name = "local"

    def __init__(self, settings: LocalSettings, *, load: Load = _load) -> None:
        """Prepare.

        Args:
            settings: what to load.
            load: loads it; called in the compute thread.
        """
        self._settings = settings
        self._load_engine = load
        self._loaded: LoadedEngine | None = None
        self._thread: ComputeThread | None = None
        self._sessions: set[EventSink] = set()
        self._watchers: set[EventSink] = set()

    async def start(self) -> None:
        """Load the model in the compute thread."""
        self._thread = ComputeThread(self._make_stepper, self._deliver, asyncio.get_running_loop())
        try:
            await self._thread.start()
        except (ValueError, OSError, MemoryError) as error:
            # A model file that cannot be read or served, or more slots than there is memory for.
            raise CannotStart(str(error)) from error
        self._ready.description.engine_version = _version()

    async def stop(self) -> None:
        """End the compute thread."""
        if self._thread is not None:
            await self._thread.stop()
        if self._loaded is not None and self._loaded.grammars is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._loaded.grammars.stop)
        if self._loaded is not None and self._loaded.eyes is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._loaded.eyes.stop)

    def describe(self) -> card_pb2.DescribeResponse:
        """What is served."""
        return self._ready.description

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Hand work and aborts to the compute thread."""
        self._sessions.add(session)
        self._call(lambda stepper: stepper.submit(session, request))

    def close(self, session: EventSink) -> None:
        """Forget a session and end its work."""
        self._sessions.discard(session)
        self._watchers.discard(session)
        self._call(lambda stepper: stepper.close(session))

    def load(self) -> card_pb2.Load:
        """The load at the end of the last step."""
        return self._ready.stepper.load.latest

    def flush_cache(self) -> int:
        """Forget the tokens of free slots."""
        dropped = self._ready.stepper.cache.flush()
        event = engine_pb2.SessionEvent(cache=[card_pb2.CacheEvent(cleared=True)])
        for session in self._watchers:
            session.emit(event)
        return dropped

    def watch_cache(self, session: EventSink) -> None:
        """Tell a session of the prefix cache from now on."""
        self._watchers.add(session)
        self._sessions.add(session)
        self._call(lambda stepper: stepper.watch_cache(session))

    def tokenizer_dir(self, model: str) -> Path | None:
        """Directory of the model's tokenizer files."""
        return self._ready.tokenizer_dir if model in ("", self._ready.description.models[0].id) else None

    @property
    def _ready(self) -> LoadedEngine:
        if self._loaded is None:
            raise RuntimeError("the engine has not started")
        return self._loaded

    def _call(self, command: Callable[[Stepper], None]) -> None:
        if self._thread is None:
            raise RuntimeError("the engine has not started")
        self._thread.call(command)

    def _make_stepper(self, thread: ComputeThread) -> Stepper:
        """In the compute thread."""
        self._loaded = self._load_engine(self._settings, lambda work: thread.call(lambda _: work()))
        return self._loaded.stepper

    def _deliver(self, events: Events) -> None:
        """On the event loop: the events of a step."""
        for session, event in events:
            if session in self._sessions:
                session.emit(event)


def _version() -> str:
    try:
        return version("smg")
    except PackageNotFoundError:
        return "unknown"
