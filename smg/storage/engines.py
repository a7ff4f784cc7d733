"""Makes SQLAlchemy engines: how SQLite and servers are connected to."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
    import aiosqlite
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
    """The threads of connections to SQLite: one each.

    A thread tells the event loop of its end, also where nobody waits for it: after a connection that failed, or a call
    that took too long. The loop must not be closed before.
    """

    def __init__(self) -> None:
        self._ending: set[asyncio.Future[Any]] = set()

    def connect(self, database: str, **options: Any) -> aiosqlite.Connection:
        """A connection to be awaited."""
        import aiosqlite

        ending = self._ending

        class Remembered(aiosqlite.Connection):
            def stop(self) -> asyncio.Future[Any] | None:
                ended = cast("asyncio.Future[Any] | None", super().stop())  # pyright: ignore[reportUnknownMemberType]
                if ended is not None:
                    ending.add(ended)
                    ended.add_done_callback(ending.discard)
                return ended

        connection = Remembered(lambda: sqlite3.connect(database, **options), iter_chunk_size=64)
        # As SQLAlchemy has it: a process that ends waits for no connection.
        connection._thread.daemon = True  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return connection

    async def ended(self) -> None:
        """Wait for those that are ending."""
        while self._ending:
            await asyncio.wait(self._ending)


def sqlite_engine(url: str, timeout_s: float, threads: SqliteThreads) -> AsyncEngine:
    """An engine for a file of SQLite.

    The file is in WAL mode, so readers do not wait; a transaction that will write takes the lock when it begins. A
    commit is on the disk when it returns.

    Args:
        url: `sqlite+aiosqlite:///…`.
        timeout_s: longest wait for the lock.
        threads: makes connections.
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
