"""Responses, conversations and their items."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    text = sa.String(255)
    op.create_table(
        "smg_responses",
        sa.Column("tenant", text, primary_key=True),
        sa.Column("id", text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body_json", sa.Text, nullable=False),
        sa.Column("input_json", sa.Text, nullable=False),
        sa.Column("previous_id", text, nullable=False),
        sa.Column("conversation_id", text, nullable=False),
    )
    op.create_index("smg_responses_created_at", "smg_responses", ["created_at"])
    op.create_table(
        "smg_conversations",
        sa.Column("tenant", text, primary_key=True),
        sa.Column("id", text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("metadata_json", sa.Text, nullable=False),
        sa.Column("next_position", sa.BigInteger, nullable=False),
    )
    op.create_index("smg_conversations_created_at", "smg_conversations", ["created_at"])
    op.create_table(
        "smg_items",
        sa.Column("tenant", text, primary_key=True),
        sa.Column("id", text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body_json", sa.Text, nullable=False),
    )
    op.create_table(
        "smg_conversation_items",
        sa.Column("tenant", text, primary_key=True),
        sa.Column("conversation_id", text, primary_key=True),
        sa.Column("item_id", text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "conversation_id"],
            ["smg_conversations.tenant", "smg_conversations.id"],
            ondelete="CASCADE",
            name="smg_conversation_items_conversation",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "item_id"], ["smg_items.tenant", "smg_items.id"], name="smg_conversation_items_item"
        ),
    )
    op.create_index(
        "smg_conversation_items_position",
        "smg_conversation_items",
        ["tenant", "conversation_id", "position"],
        unique=True,
    )
    op.create_index("smg_conversation_items_item_id", "smg_conversation_items", ["tenant", "item_id"])
