"""Runs SGLang on an event loop of its own, in a thread of its own.

SGLang blocks the thread that loads it for minutes, during which health must be answered; and in the main thread it
takes the process's signal handlers for itself, which would end our drain. Its processes die with the thread that
started them, so that thread must stay.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from servicers.sglang.engine import EngineApi

T = TypeVar("T")


class EngineThread:
    """Start it once, stop it once. `start` and `stop` on the servicer's loop, the rest from any thread."""

    def __init__(self, make_engine: Callable[[], EngineApi], outer: asyncio.AbstractEventLoop) -> None:
        """Prepare.

        Args:
            make_engine: loads the model; called in the thread.
            outer: the servicer's loop.
        """
        self._make_engine = make_engine
        self._outer = outer
        self.loop = _new_loop()
        self._started: asyncio.Future[EngineApi] = outer.create_future()
        self._thread = threading.Thread(target=self._run, name="smg-sglang", daemon=True)

    async def start(self) -> EngineApi:
        """Start, and wait until the model is loaded. Raises what loading raised."""
        self._thread.start()
        return await self._started

    async def stop(self) -> None:
        """End the loop and the engine. One that still loads is left to the end of the process, which ends it."""
        if not self._started.done() or self._started.cancelled() or self._started.exception() is not None:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        await self._outer.run_in_executor(None, self._thread.join)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread; awaited on the servicer's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            engine = self._make_engine()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start gets it
            self.loop.close()
            self._tell(self._fail_start, error)
            return
        self._tell(self._end_start, engine)
        try:
            self.loop.run_forever()
            _cancel_all(self.loop)
        finally:
            engine.shutdown()
            self.loop.close()

    def _tell(self, function: Callable[..., None], argument: object) -> None:
        if not self._outer.is_closed():
            self._outer.call_soon_threadsafe(function, argument)

    def _end_start(self, engine: EngineApi) -> None:
        if not self._started.done():
            self._started.set_result(engine)

    def _fail_start(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
