"""What is told of a database that fails, and what becomes of one that an earlier release has made."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

import smg.storage.migrations
from smg.errors import StorageFailed
from smg.settings.history import HistorySettings
from smg.storage.open import make_store
from smg.storage.records import StoredResponse

MIGRATIONS = Path(smg.storage.migrations.__file__).parent


async def test_a_failure_is_told_with_the_code_of_its_cause_and_without_values(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(b"secret text that is no database" * 200)
    store = make_store(HistorySettings(history_backend="sqlite", sqlite_path=str(path)))
    try:
        with pytest.raises(StorageFailed, match="SQLITE_NOTADB"):
            await store.open()
        with pytest.raises(StorageFailed, match="SQLITE_NOTADB") as caught:
            await store.conversation("tenant", "conv_1")
    finally:
        await store.close()
    assert "secret" not in caught.value.message


async def test_who_comes_while_the_tables_are_made_waits(tmp_path):
    path = tmp_path / "history.db"
    store = make_store(HistorySettings(history_backend="sqlite", sqlite_path=str(path)))
    coming = asyncio.gather(*(store.conversation("tenant", "conv_1") for _ in range(3)))
    await asyncio.sleep(0)
    await store.open()
    assert await coming == [None, None, None]
    await store.close()


async def test_what_an_earlier_release_has_kept_is_there_and_has_ended(tmp_path):
    path = tmp_path / "history.db"
    with create_engine(f"sqlite:///{path}").begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        row = "('tenant', 'resp_1', 7, '{}', '[]', '', '')"
        connection.exec_driver_sql(f"INSERT INTO smg_responses VALUES {row}")
    store = make_store(HistorySettings(history_backend="sqlite", sqlite_path=str(path)))
    await store.open()
    try:
        assert await store.response("tenant", "resp_1") == StoredResponse("resp_1", 7, "{}")
    finally:
        await store.close()


def test_a_loop_may_be_closed_as_soon_as_the_store_is(monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    async def fail():
        store = make_store(HistorySettings(history_backend="sqlite", sqlite_path="/no/such/folder/x.db"))
        with pytest.raises(StorageFailed):
            await store.open()
        await store.close()

    for _ in range(20):
        asyncio.run(fail())
    assert told == []
