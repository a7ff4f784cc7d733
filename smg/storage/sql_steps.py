"""Steps of transactions on the tables: what the calls of sql.py have in common."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import delete, exists, select, update

from smg.storage.records import Conversation, StoredItem
from smg.storage.tables import CONVERSATIONS, ITEMS, LINKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")
BATCH = 500  # rows, or ids in one list; databases bound the parameters of a statement
ITEM_COLUMNS = ITEMS.c.id, ITEMS.c.created_at, ITEMS.c.body_json


async def find_conversation(
    connection: AsyncConnection, tenant: str, conversation_id: str, *, will_change: bool = False
) -> Conversation | None:
    """The conversation, or None; where it will change, nobody else changes it until the transaction ends."""
    table = CONVERSATIONS.c
    wanted = select(table.id, table.created_at, table.metadata_json).where(
        table.tenant == tenant, table.id == conversation_id
    )
    row = (await connection.execute(wanted.with_for_update() if will_change else wanted)).first()
    return Conversation(row[0], row[1], MappingProxyType(json.loads(row[2]))) if row else None


async def reserve(connection: AsyncConnection, tenant: str, conversation_id: str, count: int) -> int | None:
    """The first of `count` places at the end of a conversation, which is locked from here on; None for none."""
    table = CONVERSATIONS.c
    statement = (
        update(CONVERSATIONS)
        .where(table.tenant == tenant, table.id == conversation_id)
        .values(next_position=table.next_position + count)
        .returning(table.next_position)
    )
    end = await connection.scalar(statement)
    return None if end is None else end - count


async def linked_ids(
    connection: AsyncConnection, tenant: str, conversation_id: str, ids: Sequence[str]
) -> set[str]:
    """Those of the ids that a conversation has."""
    found: set[str] = set()
    for some in batches(ids):
        wanted = select(LINKS.c.item_id).where(
            LINKS.c.tenant == tenant, LINKS.c.conversation_id == conversation_id, LINKS.c.item_id.in_(some)
        )
        found.update((await connection.execute(wanted)).scalars())
    return found


async def known_items(connection: AsyncConnection, tenant: str, ids: Sequence[str]) -> dict[str, StoredItem]:
    """The items of these ids that are stored; they stay until the transaction ends."""
    found: dict[str, StoredItem] = {}
    for some in batches(ids):
        wanted = select(*ITEM_COLUMNS).where(ITEMS.c.tenant == tenant, ITEMS.c.id.in_(some))
        rows = await connection.execute(wanted.with_for_update(read=True, key_share=True))
        found.update((row[0], StoredItem(*row)) for row in rows)
    return found


async def drop_conversation(connection: AsyncConnection, tenant: str, conversation_id: str) -> bool:
    """Forget a conversation, and items that are in no other. Returns whether there was one."""
    gone = (
        delete(LINKS)
        .where(LINKS.c.tenant == tenant, LINKS.c.conversation_id == conversation_id)
        .returning(LINKS.c.item_id)
    )
    ids = (await connection.execute(gone)).scalars().all()
    table = CONVERSATIONS.c
    statement = delete(CONVERSATIONS).where(table.tenant == tenant, table.id == conversation_id)
    found = (await connection.execute(statement)).rowcount > 0
    await forget_unlinked(connection, tenant, ids)
    return found


async def forget_unlinked(connection: AsyncConnection, tenant: str, ids: Iterable[str]) -> None:
    """Forget those items that no conversation has."""
    used = exists().where(LINKS.c.tenant == ITEMS.c.tenant, LINKS.c.item_id == ITEMS.c.id)
    for some in batches(list(ids)):
        await connection.execute(delete(ITEMS).where(ITEMS.c.tenant == tenant, ITEMS.c.id.in_(some), ~used))


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Values in portions that fit into a statement."""
    for at in range(0, len(values), BATCH):
        yield values[at : at + BATCH]


def kind_of(error: Exception) -> str:
    """What failed, such as `OperationalError SQLITE_FULL`. What a driver says in words may quote the statement's values."""
    cause: object = getattr(error, "orig", None) or error
    while isinstance(cause, Exception):
        for code in ("sqlite_errorname", "sqlstate"):
            name = getattr(cause, code, None)
            if isinstance(name, str):
                return f"{type(error).__name__} {name}"
        cause = cause.__cause__
    return type(error).__name__
