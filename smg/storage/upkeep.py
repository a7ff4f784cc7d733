"""Looks after a store while the router runs: opens it, again and again where it cannot be reached, and forgets what is old."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from smg.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from smg.storage.base import HistoryStore

logger = logging.getLogger(__name__)

_DAY_S = 86400
_PURGE_EVERY_S = 3600.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0


async def look_after(
    store: HistoryStore,
    retention_days: int,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now: Callable[[], float] = time.time,  # noqa: TID251 - compared with times that are kept
) -> None:
    """Open the store, then purge it from time to time. Runs until cancelled; no outage ends it.

    Args:
        store: not open yet.
        retention_days: age beyond which history is forgotten; 0 for none.
        sleep: waits for seconds.
        now: Unix time in seconds.
    """
    await _open(store, sleep)
    while retention_days:
        try:
            count = await store.purge(int(now()) - retention_days * _DAY_S)
        except StorageFailed as error:
            logger.warning("old history could not be forgotten: %s", error)
        else:
            if count:
                logger.info("forgot %d responses and conversations older than %d days", count, retention_days)
        await sleep(_PURGE_EVERY_S)


async def _open(store: HistoryStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            await store.open()
        except StorageFailed as error:
            logger.error("%s (next attempt in %g s)", error, wait_s)  # noqa: TRY400 - the trace tells no more
        else:
            return
        await sleep(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
