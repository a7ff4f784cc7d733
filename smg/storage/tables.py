"""The tables, as migrations/ makes them. A tenant's rows begin with its name in every key."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, MetaData, String, Table, Text

ID_CHARS = 255

METADATA = MetaData()

RESPONSES = Table(
    "smg_responses",
    METADATA,
    Column("tenant", String(ID_CHARS), primary_key=True),
    Column("id", String(ID_CHARS), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("body_json", Text, nullable=False),
    Column("input_json", Text, nullable=False),
    Column("previous_id", String(ID_CHARS), nullable=False),
    Column("conversation_id", String(ID_CHARS), nullable=False),
    Column("lease_until", BigInteger, nullable=False, server_default="0"),
    Index("smg_responses_created_at", "created_at"),
)

CONVERSATIONS = Table(
    "smg_conversations",
    METADATA,
    Column("tenant", String(ID_CHARS), primary_key=True),
    Column("id", String(ID_CHARS), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("metadata_json", Text, nullable=False),
    # The place of the next item. Whoever adds items raises it first: the row's lock puts writers into order.
    Column("next_position", BigInteger, nullable=False),
    Index("smg_conversations_created_at", "created_at"),
)

ITEMS = Table(
    "smg_items",
    METADATA,
    Column("tenant", String(ID_CHARS), primary_key=True),
    Column("id", String(ID_CHARS), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("body_json", Text, nullable=False),
)

LINKS = Table(
    "smg_conversation_items",
    METADATA,
    Column("tenant", String(ID_CHARS), primary_key=True),
    Column("conversation_id", String(ID_CHARS), primary_key=True),
    Column("item_id", String(ID_CHARS), primary_key=True),
    Column("position", BigInteger, nullable=False),
    ForeignKeyConstraint(
        ["tenant", "conversation_id"],
        ["smg_conversations.tenant", "smg_conversations.id"],
        ondelete="CASCADE",
        name="smg_conversation_items_conversation",
    ),
    ForeignKeyConstraint(
        ["tenant", "item_id"], ["smg_items.tenant", "smg_items.id"], name="smg_conversation_items_item"
    ),
    Index("smg_conversation_items_position", "tenant", "conversation_id", "position", unique=True),
    Index("smg_conversation_items_item_id", "tenant", "item_id"),
)
