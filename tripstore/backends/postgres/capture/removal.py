"""`remove`: capture gone, the company's tables as they were."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812

from tripstore.backends.postgres.capture.columns import AddedColumn
from tripstore.backends.postgres.capture.install import OwnTables, capture_steps
from tripstore.backends.postgres.capture.migrate import HAS_SCHEMA
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.tables import SCHEMA
from tripstore.backends.postgres.wire.connections import rows


def remove(
    connection: Connection, layout: Layout, *, tables: bool = False, columns: bool = False, patience: Patience = PATIENT
) -> None:
    """Take off triggers, gate and functions; `tables`: our own with all history, `columns`: those that we added.

    May be killed anywhere and repeated.
    """
    if not rows(connection, HAS_SCHEMA, (SCHEMA,))[0][0]:
        return
    for step in reversed(capture_steps(layout, patience=patience)):
        kept = (isinstance(step, OwnTables) and not tables) or (isinstance(step, AddedColumn) and not columns)
        if not kept:
            step.revert(connection)
