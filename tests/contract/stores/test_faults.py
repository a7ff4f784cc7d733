"""Databases and routers that are killed while they write: what was acknowledged is there, whole; nothing else is."""

import asyncio
import sqlite3
import sys
import threading
from contextlib import AsyncExitStack, closing

import pytest

from smg.errors import StorageFailed
from smg.storage.records import Conversation, StoredItem, StoredResponse
from smg.storage.redis import RedisStore
from smg.storage.sql import SqlStore
from tests.contract.stores.conftest import empty_database, sqlalchemy_url
from tests.contract.stores.servers import VALKEY, running_redis


async def started(kind, stack, request):
    """A store, and how its server is killed and started."""
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        store = SqlStore(sqlalchemy_url(server.url), timeout_s=5)

        async def kill():
            server.kill()

        async def start():
            await asyncio.to_thread(server.start)

        return store, kill, start
    server = await stack.enter_async_context(running_redis(VALKEY))
    return RedisStore(server.url, timeout_s=5), server.kill, server.start


def turn(writer, number):
    """A response and the two items that it brings along."""
    name = f"{writer}.{number}"
    items = [StoredItem(f"{name}.{part}", 1, "{}") for part in "ab"]
    return StoredResponse(f"resp_{name}", 1, "{}", conversation_id="conv"), items


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
async def test_a_database_that_is_killed_loses_nothing_acknowledged_and_heals(kind, request):
    async with AsyncExitStack() as stack:
        store, kill, start = await started(kind, stack, request)
        await store.open()
        stack.push_async_callback(store.close)
        await store.put_conversation("t", Conversation("conv", 1))
        acknowledged, enough = [], asyncio.Event()

        async def write(writer):
            for number in range(10_000):
                try:
                    await store.put_response("t", *turn(writer, number))
                except StorageFailed:
                    return
                acknowledged.append(f"{writer}.{number}")
                if len(acknowledged) > 60:
                    enough.set()

        writers = asyncio.gather(*map(write, range(4)))
        await enough.wait()
        await kill()
        await writers
        with pytest.raises(StorageFailed, match="try again"):
            await store.response("t", "resp_0.0")
        await start()

        page = await store.items("t", "conv", 100_000, newest_first=False)
        names = [each.id for each in page.items]
        assert {name[:-2] for name in names} >= set(acknowledged)
        for first, second in zip(names[::2], names[1::2], strict=True):
            assert (first[:-2], first[-1], second[-1]) == (second[:-2], "a", "b")
            assert await store.response("t", f"resp_{first[:-2]}")
        await store.put_response("t", *turn("later", 0))


WRITER = """
import asyncio, sys
from smg.storage.sql import SqlStore
from smg.storage.records import Conversation, StoredItem, StoredResponse

async def main():
    store = SqlStore(sys.argv[1], timeout_s=10)
    await store.open()
    await store.put_conversation("t", Conversation("conv", 1))
    for number in range(100_000):
        items = [StoredItem(f"{number}.{part}", 1, "{}") for part in "ab"]
        await store.put_response("t", StoredResponse(f"resp_{number}", 1, "{}", conversation_id="conv"), items)
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_router_that_is_killed_leaves_whole_turns_in_sqlite(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path}/history.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, url, stdout=asyncio.subprocess.PIPE
    )
    for _ in range(40):
        await process.stdout.readline()
    process.kill()
    rest = await process.stdout.read()
    await process.wait()
    acknowledged = 40 + rest.count(b"\n")

    store = SqlStore(url, timeout_s=10)
    await store.open()
    page = await store.items("t", "conv", 100_000, newest_first=False)
    names = [each.id for each in page.items]
    assert len(names) >= 2 * acknowledged
    assert names == [f"{number}.{part}" for number in range(len(names) // 2) for part in "ab"]
    await store.close()


STARTER = """
import asyncio, sys
from smg.storage.sql import SqlStore

async def main():
    store = SqlStore(sys.argv[1], timeout_s=30)
    await store.open()
    assert await store.response("t", "r") is None
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_routers_that_start_at_once_make_the_tables_once(kind, request, tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path}/history.db"
    if kind == "postgres":
        url = await empty_database(request.getfixturevalue("postgres"))
    starting = [await asyncio.create_subprocess_exec(sys.executable, "-c", STARTER, url) for _ in range(3)]
    assert [await process.wait() for process in starting] == [0, 0, 0]


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://u:secret@127.0.0.1:1/x", "sqlite+aiosqlite:////no/such/folder/x.db"]
)
async def test_a_database_that_cannot_be_reached_is_told_without_its_password(url):
    store = SqlStore(url, timeout_s=5)
    with pytest.raises(StorageFailed) as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_closed_sqlite_store_leaves_no_thread_wherever_its_calls_were_cancelled(tmp_path):
    before = set(threading.enumerate())
    path = tmp_path / "history.db"
    store = SqlStore(f"sqlite+aiosqlite:///{path}", timeout_s=5)
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for turns in range(0, 60, 3):
            writing = [
                asyncio.ensure_future(store.put_response("t", StoredResponse("resp_1", 7, "{}", "[]")))
                for _ in range(3)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            for each in writing:
                each.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
    await store.close()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if "_connection_worker_thread" in thread.name]
