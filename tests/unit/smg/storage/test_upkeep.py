"""A store is opened however long that takes, and forgets what is old from time to time."""

import asyncio

import pytest

from smg.errors import StorageFailed
from smg.storage.upkeep import look_after


class Store:
    """Fails as often as it is told to."""

    def __init__(self, *, opens_after=0, purges_after=0):
        self.fail_open, self.fail_purge = opens_after, purges_after
        self.purged = []

    async def open(self):
        self.fail_open -= 1
        if self.fail_open >= 0:
            raise StorageFailed("no database")

    async def purge(self, before):
        self.fail_purge -= 1
        if self.fail_purge >= 0:
            raise StorageFailed("no database")
        self.purged.append(before)
        return 3


async def run(store, days, sleeps):
    """The waits, until there were enough of them."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        if len(waits) == sleeps:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await look_after(store, days, sleep=sleep, now=lambda: 1_000_000.0)
    return waits


async def test_it_tries_to_open_with_growing_waits():
    store = Store(opens_after=8)
    assert await run(store, 1, 9) == [0.5, 1, 2, 4, 8, 15, 15, 15, 3600]
    assert store.purged == [1_000_000 - 86400]


async def test_an_outage_does_not_end_the_purging():
    store = Store(purges_after=1)
    assert await run(store, 2, 2) == [3600, 3600]
    assert store.purged == [1_000_000 - 2 * 86400]


async def test_without_a_retention_nothing_is_purged():
    store = Store()
    await look_after(store, 0)
    assert store.purged == []
