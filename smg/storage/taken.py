"""What is said about ids of items that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import ItemTaken, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.storage.records import StoredItem


def taken(item_id: str) -> ItemTaken:
    """The conversation has it."""
    error = ItemTaken("Item already in conversation", param="items")
    error.add_note(item_id)
    return error


def unknown_item(item_id: str) -> NotFound:
    """Nobody has it."""
    return NotFound(f"item {item_id!r} is not stored", param=item_id)


def refuse_repeated(items: Sequence[StoredItem | str]) -> None:
    """Refuse an id that is named twice.

    Raises:
        ItemTaken: one is.
    """
    seen: set[str] = set()
    for item in items:
        item_id = item if isinstance(item, str) else item.id
        if item_id in seen:
            raise taken(item_id)
        seen.add(item_id)
