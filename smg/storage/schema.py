"""Brings the tables up to date when a router starts. Routers that start together do it one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number, the same for all routers, and for nothing else in the database.
_LOCK = 0x534D47


async def bring_up_to_date(connection: AsyncConnection) -> None:
    """Run the migrations that are missing, in the connection's transaction."""
    if connection.dialect.name == "postgresql":
        # Held until the transaction ends. SQLite has locked the file already.
        await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
