"""`remove`: capture gone, the company's tables as they were."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.columns import AddedColumn
from tripstore.backends.postgres.capture.functions.gate import SEQUENCE, GateState, read_gate
from tripstore.backends.postgres.capture.install import OwnTables, capture_steps
from tripstore.backends.postgres.capture.migrate import HAS_SCHEMA
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows


def remove(
    connection: Connection, layout: Layout, *, tables: bool = False, columns: bool = False, patience: Patience = PATIENT
) -> None:
    """Take off triggers, gate and functions; `tables`: our own with all history, `columns`: those that we added.

    May be killed anywhere and repeated.
    """
    if columns and not tables:
        raise LegacyRefused(
            "Versions would begin anew while our tables remember higher ones.",
            hint="Remove the tables along with the columns: `--tables --columns`.",
        )
    if not rows(connection, HAS_SCHEMA, (SCHEMA,))[0][0]:
        return
    _refuse_shut_gate(connection)
    for step in reversed(capture_steps(layout, patience=patience)):
        kept = (isinstance(step, OwnTables) and not tables) or (isinstance(step, AddedColumn) and not columns)
        if not kept:
            step.revert(connection)


def _refuse_shut_gate(connection: Connection) -> None:
    """Without it any session could write here again, while the other store is the authority (I9)."""
    if rows(connection, "SELECT pg_catalog.to_regclass(%s) IS NULL", (SEQUENCE,))[0][0]:
        return
    gate = read_gate(connection)
    if gate.state is not GateState.OPEN:
        raise LegacyRefused(
            f"The gate is {gate.state.name.lower()} at epoch {gate.epoch}: Postgres is not the open authority.",
            hint="Switch back first, or complete the migration.",
        )
