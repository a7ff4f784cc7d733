"""SGLang behind the servicer's Engine interface.

Nothing here computes or waits for the engine: work goes to SGLang's thread, and what a turn of its loop brings comes
back in one call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from servicers.base import CannotStart, Engine, EngineFault
from servicers.sglang.cards import describe_model
from servicers.sglang.thread import EngineThread
from servicers.sglang.work import Work
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from servicers.base import EventSink
    from servicers.sglang.cards import ServedByUs
    from servicers.sglang.engine import EngineApi, SglangPackage
    from servicers.sglang.settings import SglangSettings
    from servicers.sglang.work import Events
    from smg_proto.engine.v1 import engine_pb2

# Where SGLang does not tell how many sequences it runs at a time.
_MAX_RUNNING = 2048


class SglangEngine(Engine):
    """See servicers.base.Engine."""

    name = "sglang"

    def __init__(self, settings: SglangSettings, package: SglangPackage) -> None:
        self._settings = settings
        self._package = package
        self._thread: EngineThread | None = None
        self._work: Work | None = None
        self._served: ServedByUs | None = None
        self._sessions: set[EventSink] = set()

    async def start(self) -> None:
        """Load the model in SGLang's thread."""
        loop = asyncio.get_running_loop()
        self._thread = EngineThread(self._make_engine, loop)
        try:
            engine = await self._thread.start()
        except CannotStart:
            raise
        except Exception as error:
            raise CannotStart(f"SGLang cannot start: {type(error).__name__}: {error}") from error
        loads = await self._thread.ask(_loads(engine))
        max_running = sum(each.max_running_requests for each in loads) or _MAX_RUNNING
        self._served = describe_model(engine, self._settings, self._package.version, max_running)

        def deliver(events: Events) -> None:
            loop.call_soon_threadsafe(self._deliver, events)

        self._work = Work(engine, self._package, self._served, deliver)

    async def stop(self) -> None:
        """End SGLang's processes and its thread."""
        if self._thread is not None:
            await self._thread.stop()

    def describe(self) -> card_pb2.DescribeResponse:
        """What is served."""
        served = self._ready_served
        return card_pb2.DescribeResponse(
            models=[served.card],
            engine=self.name,
            engine_version=served.version,
            max_running=served.max_running,
            data_parallel_size=served.ranks,
        )

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Hand work and aborts to SGLang's thread."""
        self._sessions.add(session)
        self._ready_thread.call(self._ready_work.submit, session, request)

    def close(self, session: EventSink) -> None:
        """Forget a session and end its work."""
        self._sessions.discard(session)
        self._ready_thread.call(self._ready_work.close, session)

    def load(self) -> card_pb2.Load:
        """As the last turn left it."""
        return self._ready_work.load

    async def flush_cache(self) -> int:
        """Forget cached prefixes. SGLang can do that only while nothing runs, and does not tell how many."""
        engine = self._ready_work.engine

        async def flush() -> int:
            used = sum(each.num_used_tokens for each in await engine.tokenizer_manager.get_loads())
            return used if (await engine.tokenizer_manager.flush_cache()).success else 0

        return await self._ready_thread.ask(flush())

    def tokenizer_dir(self, model: str) -> Path | None:
        """Directory of the model's tokenizer files."""
        return self._settings.tokenizer_dir if model in ("", self._ready_served.card.id) else None

    async def start_profile(self, output_dir: str) -> None:
        """Begin to profile."""
        request = self._package.profile_request(output_dir=output_dir or None)
        await self._ask(self._ready_work.engine.tokenizer_manager.start_profile(request))

    async def stop_profile(self) -> None:
        """End it; SGLang writes its files."""
        await self._ask(self._ready_work.engine.tokenizer_manager.stop_profile())

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter."""
        await self._change_loras(self._ready_work.engine.async_load_lora_adapter(name, path))

    async def unload_lora(self, name: str) -> None:
        """Unload an adapter."""
        await self._change_loras(self._ready_work.engine.async_unload_lora_adapter(name))

    async def _change_loras(self, change: Coroutine[Any, Any, Any]) -> None:
        answer = await self._ask(change)
        if not answer.success:
            raise EngineFault(str(answer.error_message or "SGLang refused it and did not say why"))
        loras = self._ready_work.engine.tokenizer_manager.lora_registry.get_all_adapters()
        card = self._ready_served.card
        del card.loras[:]
        card.loras.extend(sorted(loras))

    async def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await self._ready_thread.ask(work)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise EngineFault(str(error)) from error

    @property
    def _ready_thread(self) -> EngineThread:
        return _need(self._thread)

    @property
    def _ready_work(self) -> Work:
        return _need(self._work)

    @property
    def _ready_served(self) -> ServedByUs:
        return _need(self._served)

    def _make_engine(self) -> EngineApi:
        """In SGLang's thread."""
        return self._package.make_engine(self._settings.arguments)

    def _deliver(self, events: Events) -> None:
        """On the servicer's loop: the events of a turn."""
        for session, event in events:
            if session in self._sessions:
                session.emit(event)


async def _loads(engine: EngineApi) -> Any:
    return await engine.tokenizer_manager.get_loads()


def _need(thing: Any) -> Any:
    if thing is None:
        raise RuntimeError("the engine has not started")
    return thing
