"""Runs the control database's migrations on the connection that `ControlDatabase.migrate` hands in."""

from __future__ import annotations

from alembic import context

from schemaless_core.control.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
