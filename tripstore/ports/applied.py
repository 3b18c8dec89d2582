"""Where Postgres says that the reverse mirror is, for counting what Postgres lacks."""

from __future__ import annotations

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.handover.applied import find_all
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.schemaless.shards import Applied

SECONDS = 2.0


def applied_of(database: LegacyDatabase) -> Applied:
    """Asks at each call. A Postgres that does not answer raises: then nothing may be counted."""
    return lambda: database.run(find_all, Deadline(SECONDS))
