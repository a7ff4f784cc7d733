"""Until when a router vouches that a response runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what is there has ended."""
    op.add_column(
        "smg_responses", sa.Column("lease_until", sa.BigInteger, nullable=False, server_default="0")
    )
