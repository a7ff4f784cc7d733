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
