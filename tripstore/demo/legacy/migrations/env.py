"""Runs the company's migrations on the connection that `CompanySchema` hands in.

The version table is alembic's usual one. Autogenerate looks at the company's own tables: not at partitions, which come
and go with their table, and not at whatever others add.
"""

from __future__ import annotations

from alembic import context

from tripstore.demo.legacy.models import Base
from tripstore.demo.legacy.schema import is_ours

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, include_object=is_ours
)
with context.begin_transaction():
    context.run_migrations()
