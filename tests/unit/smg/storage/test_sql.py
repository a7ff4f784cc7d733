"""What is told of a database that fails."""

from __future__ import annotations

import pytest

from smg.errors import StorageFailed
from smg.settings.history import HistorySettings
from smg.storage.open import make_store


async def test_a_failure_is_told_with_the_code_of_its_cause_and_without_values(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(b"secret text that is no database" * 200)
    store = make_store(HistorySettings(history_backend="sqlite", sqlite_path=str(path)))
    try:
        with pytest.raises(StorageFailed, match="SQLITE_NOTADB") as caught:
            await store.conversation("tenant", "conv_1")
    finally:
        await store.close()
    assert "secret" not in caught.value.message
