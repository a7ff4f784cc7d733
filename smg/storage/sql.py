"""History in a SQL database: SQLite or PostgreSQL, through SQLAlchemy Core.

One transaction a call. SQLite takes its write lock when a transaction begins, PostgreSQL the lock of the conversation's
row when items are added: writers of one conversation wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, literal, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from smg.errors import StorageFailed
from smg.storage.chains import join_chain
from smg.storage.engines import SqliteThreads, server_engine, sqlite_engine
from smg.storage.metadata import merged
from smg.storage.records import Conversation, ItemPage, StoredItem, StoredResponse
from smg.storage.schema import bring_up_to_date
from smg.storage.sql_steps import (
    BATCH,
    ITEM_COLUMNS,
    batches,
    drop_conversation,
    find_conversation,
    forget_unlinked,
    kind_of,
    known_items,
    linked_ids,
    reserve,
)
from smg.storage.tables import CONVERSATIONS, ITEMS, LINKS, RESPONSES
from smg.storage.taken import refuse_repeated, taken, unknown_item

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

_RESPONSE_COLUMNS = (
    RESPONSES.c.id,
    RESPONSES.c.created_at,
    RESPONSES.c.body_json,
    RESPONSES.c.input_json,
    RESPONSES.c.previous_id,
    RESPONSES.c.conversation_id,
    RESPONSES.c.lease_until,
)


class SqlStore:
    """The store."""

    def __init__(self, url: str, *, timeout_s: float, pool_size: int = 16) -> None:
        """Connect to nothing yet.

        Args:
            url: SQLAlchemy's, of a dialect that asyncio can drive.
            timeout_s: longest time of a call, waiting for a connection included.
            pool_size: most connections to a server.
        """
        self._timeout_s = timeout_s
        is_sqlite = url.startswith("sqlite")
        self._threads = SqliteThreads()
        self._tried = asyncio.Event()
        self._engine = (
            sqlite_engine(url, timeout_s, self._threads)
            if is_sqlite
            else server_engine(url, timeout_s, pool_size)
        )
        self._writing = self._engine.execution_options(smg_writes=True)
        # The one statement that both dialects write alike and SQLAlchemy has in neither's name.
        self._insert: Any = sqlite.insert if is_sqlite else postgresql.insert

    async def open(self) -> None:
        """See HistoryStore."""
        try:
            async with self._transaction(writes=True, is_first=True) as connection:
                await bring_up_to_date(connection)
        finally:
            self._tried.set()

    async def close(self) -> None:
        """See HistoryStore."""
        await self._engine.dispose()
        await self._threads.wait_ended(self._timeout_s)

    async def put_response(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> None:
        """See HistoryStore."""
        values = _values(response)
        statement = self._insert(RESPONSES).values(tenant=tenant, id=response.id, **values)
        async with self._transaction(writes=True) as connection:
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["tenant", "id"], set_=values)
            )
            if items:
                await self._append_missing(connection, tenant, response.conversation_id, items)

    async def replace_running(
        self, tenant: str, response: StoredResponse, items: Sequence[StoredItem] = ()
    ) -> bool:
        """See HistoryStore."""
        statement = (
            update(RESPONSES)
            .where(RESPONSES.c.tenant == tenant, RESPONSES.c.id == response.id, RESPONSES.c.lease_until != 0)
            .values(_values(response))
        )
        async with self._transaction(writes=True) as connection:
            if not (await connection.execute(statement)).rowcount:
                return False
            if items:
                await self._append_missing(connection, tenant, response.conversation_id, items)
        return True

    async def renew(self, running: Sequence[tuple[str, str]], lease_until: int) -> set[tuple[str, str]]:
        """See HistoryStore."""
        key = tuple_(RESPONSES.c.tenant, RESPONSES.c.id)
        still: set[tuple[str, str]] = set()
        for some in batches(running):
            statement = (
                update(RESPONSES)
                .where(key.in_(some), RESPONSES.c.lease_until != 0)
                .values(lease_until=lease_until)
                .returning(RESPONSES.c.tenant, RESPONSES.c.id)
            )
            async with self._transaction(writes=True) as connection:
                rows = (await connection.execute(statement)).all()
            still.update((row[0], row[1]) for row in rows)
        return still

    async def response(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See HistoryStore."""
        wanted = select(*_RESPONSE_COLUMNS).where(RESPONSES.c.tenant == tenant, RESPONSES.c.id == response_id)
        async with self._transaction() as connection:
            row = (await connection.execute(wanted)).first()
        return StoredResponse(*row) if row else None

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """See HistoryStore."""
        wanted = delete(RESPONSES).where(RESPONSES.c.tenant == tenant, RESPONSES.c.id == response_id)
        async with self._transaction(writes=True) as connection:
            return (await connection.execute(wanted)).rowcount > 0

    async def chain(self, tenant: str, response_id: str, longest: int) -> list[StoredResponse]:
        """See HistoryStore."""
        first = select(*_RESPONSE_COLUMNS, literal(1).label("depth")).where(
            RESPONSES.c.tenant == tenant, RESPONSES.c.id == response_id
        )
        links = first.cte("links", recursive=True)
        before = select(*_RESPONSE_COLUMNS, links.c.depth + 1).where(
            RESPONSES.c.tenant == tenant, RESPONSES.c.id == links.c.previous_id, links.c.depth < longest
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(select(links.union_all(before)))).all()
        found = [StoredResponse(*row[:-1]) for row in rows]
        return join_chain(response_id, {each.id: each for each in found}, longest)

    async def put_conversation(self, tenant: str, conversation: Conversation) -> None:
        """See HistoryStore."""
        row = {
            "tenant": tenant,
            "id": conversation.id,
            "created_at": conversation.created_at,
            "metadata_json": json.dumps(dict(conversation.metadata)),
            "next_position": 0,
        }
        async with self._transaction(writes=True) as connection:
            await connection.execute(insert(CONVERSATIONS).values(row))

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """See HistoryStore."""
        async with self._transaction() as connection:
            return await find_conversation(connection, tenant, conversation_id)

    async def merge_metadata(
        self, tenant: str, conversation_id: str, changes: Mapping[str, str | None], most: int
    ) -> Conversation | None:
        """See HistoryStore."""
        async with self._transaction(writes=True) as connection:
            before = await find_conversation(connection, tenant, conversation_id, will_change=True)
            if before is None:
                return None
            metadata = merged(before.metadata, changes, most)
            await connection.execute(
                update(CONVERSATIONS)
                .where(CONVERSATIONS.c.tenant == tenant, CONVERSATIONS.c.id == conversation_id)
                .values(metadata_json=json.dumps(metadata))
            )
        return Conversation(before.id, before.created_at, MappingProxyType(metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """See HistoryStore."""
        async with self._transaction(writes=True) as connection:
            return await drop_conversation(connection, tenant, conversation_id)

    async def add_items(
        self, tenant: str, conversation_id: str, items: Sequence[StoredItem | str]
    ) -> list[StoredItem] | None:
        """See HistoryStore."""
        refuse_repeated(items)
        async with self._transaction(writes=True) as connection:
            position = await reserve(connection, tenant, conversation_id, len(items))
            if position is None:
                return None
            ids = [item if isinstance(item, str) else item.id for item in items]
            for item_id in await linked_ids(connection, tenant, conversation_id, ids):
                raise taken(item_id)
            known = await known_items(connection, tenant, ids)
            for item in items:
                if isinstance(item, str) and item not in known:
                    raise unknown_item(item)
            new = [item for item in items if not isinstance(item, str) and item.id not in known]
            result = [known[item] if isinstance(item, str) else known.get(item.id, item) for item in items]
            await self._append(connection, tenant, conversation_id, new, ids, position)
        return result

    async def items(
        self, tenant: str, conversation_id: str, limit: int, *, newest_first: bool, after: str = ""
    ) -> ItemPage | None:
        """See HistoryStore."""
        position = LINKS.c.position
        wanted = (
            select(*ITEM_COLUMNS)
            .join(LINKS, (LINKS.c.tenant == ITEMS.c.tenant) & (LINKS.c.item_id == ITEMS.c.id))
            .where(LINKS.c.tenant == tenant, LINKS.c.conversation_id == conversation_id)
            .order_by(position.desc() if newest_first else position)
            .limit(limit + 1)
        )
        async with self._transaction() as connection:
            if await find_conversation(connection, tenant, conversation_id) is None:
                return None
            if after:
                at = await connection.scalar(
                    select(position).where(
                        LINKS.c.tenant == tenant,
                        LINKS.c.conversation_id == conversation_id,
                        LINKS.c.item_id == after,
                    )
                )
                if at is None:
                    raise unknown_item(after)
                wanted = wanted.where(position < at if newest_first else position > at)
            rows = (await connection.execute(wanted)).all()
        return ItemPage([StoredItem(*row) for row in rows[:limit]], len(rows) > limit)

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> StoredItem | None:
        """See HistoryStore."""
        wanted = (
            select(*ITEM_COLUMNS)
            .join(LINKS, (LINKS.c.tenant == ITEMS.c.tenant) & (LINKS.c.item_id == ITEMS.c.id))
            .where(
                LINKS.c.tenant == tenant,
                LINKS.c.conversation_id == conversation_id,
                LINKS.c.item_id == item_id,
            )
        )
        async with self._transaction() as connection:
            row = (await connection.execute(wanted)).first()
        return StoredItem(*row) if row else None

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """See HistoryStore."""
        wanted = delete(LINKS).where(
            LINKS.c.tenant == tenant, LINKS.c.conversation_id == conversation_id, LINKS.c.item_id == item_id
        )
        async with self._transaction(writes=True) as connection:
            if not (await connection.execute(wanted)).rowcount:
                return False
            await forget_unlinked(connection, tenant, [item_id])
        return True

    async def purge(self, before: int) -> int:
        """See HistoryStore."""
        count = 0
        async with self._transaction(writes=True) as connection:
            old = delete(RESPONSES).where(RESPONSES.c.created_at < before)
            count += (await connection.execute(old)).rowcount
        some = select(CONVERSATIONS.c.tenant, CONVERSATIONS.c.id).where(CONVERSATIONS.c.created_at < before)
        while True:
            # In small transactions: nobody else should wait for long.
            async with self._transaction(writes=True) as connection:
                keys = (await connection.execute(some.limit(BATCH))).all()
                for tenant, conversation_id in keys:
                    count += await drop_conversation(connection, tenant, conversation_id)
            if not keys:
                return count

    @contextlib.asynccontextmanager
    async def _transaction(
        self, *, writes: bool = False, is_first: bool = False
    ) -> AsyncGenerator[AsyncConnection, None]:
        """A transaction: committed at the end, rolled back on any error. Until open() was tried only the first runs.

        Raises:
            StorageFailed: the database cannot be reached, does not answer in time, or refuses.
        """
        engine = self._writing if writes else self._engine
        try:
            async with asyncio.timeout(self._timeout_s):
                if not is_first and not self._tried.is_set():
                    # The tables are being made: who comes in that moment waits.
                    await self._tried.wait()
                async with engine.begin() as connection:
                    yield connection
        except TimeoutError as error:
            raise StorageFailed(
                f"the history store did not answer within {self._timeout_s:g} s; try again"
            ) from error
        except (SQLAlchemyError, OSError) as error:
            raise StorageFailed(f"the history store failed ({kind_of(error)}); try again") from error

    async def _append_missing(
        self, connection: AsyncConnection, tenant: str, conversation_id: str, items: Sequence[StoredItem]
    ) -> None:
        """Put those that it has not at the end of a conversation, if it is there."""
        new = list({item.id: item for item in items}.values())
        position = await reserve(connection, tenant, conversation_id, len(new))
        if position is None:
            return
        linked = await linked_ids(connection, tenant, conversation_id, [item.id for item in new])
        new = [item for item in new if item.id not in linked]
        known = await known_items(connection, tenant, [item.id for item in new])
        ids = [item.id for item in new]
        await self._append(
            connection, tenant, conversation_id, [item for item in new if item.id not in known], ids, position
        )

    async def _append(
        self,
        connection: AsyncConnection,
        tenant: str,
        conversation_id: str,
        new: Sequence[StoredItem],
        ids: Sequence[str],
        position: int,
    ) -> None:
        """Keep new items, and link all ids from a position on."""
        for some in batches(new):
            rows = [{"tenant": tenant, **item._asdict()} for item in some]
            await connection.execute(self._insert(ITEMS).on_conflict_do_nothing(), rows)
        for some in batches(list(enumerate(ids, position))):
            rows = [
                {"tenant": tenant, "conversation_id": conversation_id, "item_id": item_id, "position": at}
                for at, item_id in some
            ]
            await connection.execute(insert(LINKS), rows)


def _values(response: StoredResponse) -> dict[str, str | int]:
    """A response's columns but for its key."""
    return {
        "created_at": response.created_at,
        "body_json": response.body_json,
        "input_json": response.input_json,
        "previous_id": response.previous_id,
        "conversation_id": response.conversation_id,
        "lease_until": response.lease_until,
    }
