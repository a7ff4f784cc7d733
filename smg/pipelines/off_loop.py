"""Keeps work on long requests off the event loop, which everybody shares."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")
# Reading the JSON texts in so many bytes takes about a millisecond.
INLINE_BYTES = 48_000


async def in_thread(
    work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
) -> ResultT:
    """Do some work in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))


async def off_loop(work: Callable[[], ResultT], *, size: int) -> ResultT:
    """Do some work: here for a short request, in a thread for one of more than INLINE_BYTES bytes."""
    if size <= INLINE_BYTES:
        return work()
    return await in_thread(work)


class LongLane:
    """Does very long pieces of work one at a time, with a pause as long as the work after each.

    Each is made of calls that hold Python's lock for a tenth of a second. Several threads of such work would leave the
    event loop next to nothing; like this it has half of the time to itself, however many clients send long bodies.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def run(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Do some work in a thread when it is its turn."""
        now = asyncio.get_running_loop().time
        async with self._turn:
            if (pause_s := self._free_at - now()) > 0:
                await asyncio.sleep(pause_s)
            began_at = now()
            try:
                return await in_thread(work, *args, **kwargs)
            finally:
                self._free_at = 2 * now() - began_at
