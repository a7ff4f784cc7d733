"""Tells a server which requests to stop: a call that ends does not stop all servicers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from smg.errors import EngineError

if TYPE_CHECKING:
    from smg.workers.sglang.client import SglangClient
    from smg.workers.sglang.names import RequestNames

# Longest wait, at the end, for a server to hear what is to be stopped.
_GOODBYE_S = 1.0

_log = logging.getLogger(__name__)


class Aborts:
    """Names of requests that are to be stopped. They stay taken until the server has heard."""

    def __init__(self, names: RequestNames) -> None:
        self._names = names
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def add(self, name: str) -> None:
        """Have a request stopped soon."""
        self._queue.put_nowait(name)

    async def run(self, client: SglangClient) -> None:
        """Tell them over a connection, one after the other, until cancelled."""
        while True:
            await self._send(client, await self._queue.get())

    async def send_last(self, client: SglangClient) -> None:
        """Tell all of them at once: the connection is about to be closed."""
        names = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        tasks = [asyncio.create_task(self._send(client, name)) for name in names]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GOODBYE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, client: SglangClient, name: str) -> None:
        try:
            await client.abort(name)
        except EngineError as error:
            _log.debug("abort of request %s: %s", name, error.message)
        finally:
            self._names.free(name)
