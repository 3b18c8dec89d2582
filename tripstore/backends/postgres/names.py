"""Names in the company's database: our schema, and what SQL says of it. Its tables are in `tables`, for alembic."""

from __future__ import annotations

SCHEMA = "tripstore"
VERSION_TABLE = "alembic_version"
#: The session variable by which the facade and the reverse mirror say who they are, for one transaction.
ORIGIN = "tripstore.origin"
#: In `kept`: the key stands there to be met by a writer that cannot see what was put beside it; no row starts above it.
NO_FLOOR = -(1 << 63)
