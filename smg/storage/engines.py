"""Makes SQLAlchemy engines: how SQLite and servers are connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
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


def sqlite_engine(url: str, timeout_s: float) -> AsyncEngine:
    """An engine for a file of SQLite.

    The file is in WAL mode, so readers do not wait; a transaction that will write takes the lock when it begins. A
    commit is on the disk when it returns.

    Args:
        url: `sqlite+aiosqlite:///…`.
        timeout_s: longest wait for the lock.
    """
    engine = create_async_engine(url, hide_parameters=True, connect_args={"timeout": timeout_s})

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
