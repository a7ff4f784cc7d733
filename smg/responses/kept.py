"""Items of a response as they are kept: each with its id, beside it the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from smg.responses.items import checked_item, is_kind, new_item_id
from smg.storage.records import StoredItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.responses.shapes import Json


def kept_input(items: Iterable[Json], created_at: int) -> list[StoredItem]:
    """Input items, in the form of conversations. References are left out: what they name is kept already.

    Raises:
        InvalidRequest: an id that cannot be kept.
    """
    kept: list[StoredItem] = []
    for index, item in enumerate(items):
        checked = checked_item(index, item, created_at) if is_kind(item["type"]) else _plain(item, created_at)
        if isinstance(checked, StoredItem):
            kept.append(checked)
    return kept


def kept_output(items: Iterable[Json], created_at: int) -> list[StoredItem]:
    """Output items, as they are."""
    return [StoredItem(item["id"], created_at, orjson.dumps(item).decode()) for item in items]


def json_array(items: Iterable[StoredItem]) -> str:
    """Items as one JSON array."""
    return f"[{','.join([item.body_json for item in items])}]"


def _plain(item: Json, created_at: int) -> StoredItem:
    body = {**item, "id": item.get("id") or new_item_id(item["type"])}
    return StoredItem(body["id"], created_at, orjson.dumps(body).decode())
