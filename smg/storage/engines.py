"""Makes SQLAlchemy engines: how SQLite and servers are connected to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
    from threading import Thread

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine


def server_engine(url: str, timeout_s: float, pool_size: int) -> AsyncEngine:
    """An engine for PostgreSQL.

    Args:
        url: `postgresql+asyncpg://…`.
        timeout_s: longest time to connect, and to wait for a connection.
        pool_size: most connections.
    """
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=timeout_s,
        # A connection that the server has closed meanwhile is replaced, not told to a caller.
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"timeout": timeout_s, "command_timeout": timeout_s},
    )


class SqliteThreads:
    """The threads of an engine's connections, a thread each.

    SQLAlchemy tells a connection whose task was cancelled to stop and does not wait: its thread may still be in a
    statement when the event loop, which it then wants to tell the result, is closed.
    """

    def __init__(self) -> None:
        self._threads: WeakSet[Thread] = WeakSet()

    def connect(self, *args: Any, **options: Any) -> Any:
        """A connection that is to be awaited; for SQLAlchemy's `async_creator_fn`."""
        # Read here: routers without this store do without.
        import aiosqlite

        connection = aiosqlite.connect(*args, **options)
        # It has no public name; SQLAlchemy reaches for it in the same way.
        thread = connection._thread  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        thread.daemon = True
        self._threads.add(thread)
        return connection

    async def wait_ended(self, timeout_s: float) -> None:
        """Wait until all have ended, this long for each. Their connections have been closed before."""
        for thread in list(self._threads):
            await asyncio.to_thread(thread.join, timeout_s)


def sqlite_engine(url: str, timeout_s: float, threads: SqliteThreads) -> AsyncEngine:
    """An engine for a file of SQLite.

    The file is in WAL mode, so readers do not wait; a transaction that will write takes the lock when it begins. A
    commit is on the disk when it returns.

    Args:
        url: `sqlite+aiosqlite:///…`.
        timeout_s: longest wait for the lock.
        threads: gets the threads of the connections.
    """
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": timeout_s, "async_creator_fn": threads.connect},
    )

    def connected(connection: Any, _: object) -> None:
        # Python's own transactions begin too late to be of use.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("smg_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "begin", begun)
    return engine
