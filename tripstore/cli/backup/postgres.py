"""What of Postgres belongs to a backup of the shards, and must be in the operator's own backup of Postgres."""

from __future__ import annotations

from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.cli.backup.documents import PostgresDocument
from tripstore.cli.worker.duty import Opened

#: The authority row with its history, layouts, what was captured and not yet carried, what was applied on a way back.
SCHEMA = "the schema tripstore"


def postgres_of(stores: Opened) -> PostgresDocument | None:
    """The authority row as it is now, which shows that it can be read; None: there is no legacy store.

    A backup is whole without it, and jobs are shown and paused: that Postgres is silent is said, and is no failure.
    """
    facade = stores.facade
    if facade is None or facade.duo is None or facade.config.legacy is None:
        return None
    holds = [SCHEMA, *sorted(".".join(table) for table in facade.config.legacy.layout.tables)]
    try:
        row = facade.duo.ports.control.authority()
    except LegacyUnavailable as error:
        return PostgresDocument(None, "", holds, error.message)
    return PostgresDocument(row.epoch, row.backend.value, holds)
