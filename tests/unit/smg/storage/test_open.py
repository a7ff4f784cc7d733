"""Which store the settings make."""

import pytest
from pydantic import ValidationError

from smg.errors import MissingPackage, NotFound
from smg.settings import HistorySettings
from smg.storage.memory import MemoryStore
from smg.storage.none import NoStore
from smg.storage.open import make_store
from smg.storage.records import Conversation, StoredItem, StoredResponse
from smg.storage.redis import RedisStore
from smg.storage.sql import SqlStore


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, MemoryStore),
        ({"history_backend": "none"}, NoStore),
        ({"history_backend": "sqlite", "sqlite_path": "x.db"}, SqlStore),
        ({"history_backend": "postgres", "postgres_db_url": "postgres://u:p@h:1/d"}, SqlStore),
        ({"history_backend": "postgres", "postgres_db_url": "postgresql://u:p@h:1/d"}, SqlStore),
        ({"history_backend": "redis", "redis_url": "redis://h:1/0"}, RedisStore),
    ],
)
def test_each_backend_has_a_store(fields, kind):
    assert type(make_store(HistorySettings(**fields))) is kind


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"history_backend": "postgres"}, "needs postgres_db_url"),
        ({"history_backend": "redis", "redis_url": "h:1"}, "needs redis_url to begin with redis://"),
        ({"history_backend": "oracle"}, "history_backend"),
    ],
)
def test_a_backend_without_its_address_is_refused(fields, says):
    with pytest.raises(ValidationError, match=says):
        HistorySettings(**fields)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "smg.storage.redis", None)
    with pytest.raises(MissingPackage, match=r"pip install 'smg\[history\]'"):
        make_store(HistorySettings(history_backend="redis", redis_url="redis://h"))


async def test_no_history_keeps_nothing_and_is_no_fault():
    store = NoStore()
    await store.open()
    await store.put_response("t", StoredResponse("r", 1, "{}"), [StoredItem("i", 1, "{}")])
    await store.put_conversation("t", Conversation("c", 1))
    assert await store.response("t", "r") is None
    assert not await store.delete_response("t", "r")
    assert await store.conversation("t", "c") is None
    assert await store.merge_metadata("t", "c", {}, 1) is None
    assert await store.add_items("t", "c", []) is None
    assert await store.items("t", "c", 1, newest_first=True) is None
    assert await store.item("t", "c", "i") is None
    assert not await store.remove_item("t", "c", "i")
    assert not await store.delete_conversation("t", "c")
    assert await store.purge(9) == 0
    with pytest.raises(NotFound):
        await store.chain("t", "r", 1)
    await store.close()
