"""Ends tasks, and loses no cancellation of the one who waits for that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection


async def end_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all have ended, however they end.

    Raises:
        asyncio.CancelledError: the caller was cancelled meanwhile. They have ended then, too.
    """
    left: set[asyncio.Task[Any]] = {task for task in tasks if not task.done()}
    for task in left:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while left:
        try:
            _, left = await asyncio.wait(left)
        except asyncio.CancelledError as error:
            cancelled = error
            left = {task for task in left if not task.done()}
    for task in tasks:
        # An exception that nobody looks at is told by the event loop.
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled
