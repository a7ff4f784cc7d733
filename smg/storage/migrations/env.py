"""Alembic's entry: the connection comes from smg/storage/schema.py, which also holds the lock."""

from alembic import context

from smg.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="smg_schema_version",
    # SQLite cannot change most of a table in place.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
