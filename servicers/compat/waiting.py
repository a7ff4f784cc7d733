"""Lets one coroutine wait until something is there, on the event loop alone."""

from __future__ import annotations

import asyncio


class Waiting:
    """One waiter at a time."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        self._future = asyncio.get_running_loop().create_future()
        await self._future

    def wake(self) -> None:
        """Wake who waits, if anybody does."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
