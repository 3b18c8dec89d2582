"""Runs the migrations of schema `tripstore` on the connection that `migrate` hands in."""

from __future__ import annotations

from alembic import context

from tripstore.backends.postgres.names import SCHEMA, VERSION_TABLE
from tripstore.backends.postgres.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    version_table_schema=SCHEMA,
    include_schemas=True,
    include_object=lambda thing, _name, kind, _reflected, _other: (
        kind != "table" or getattr(thing, "schema", None) == SCHEMA
    ),
)
with context.begin_transaction():
    context.run_migrations()
