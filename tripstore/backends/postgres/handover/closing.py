"""The end of a migration in Postgres: the mapped tables are closed for good, then capture and gate come off.

In this order: between the two a session could write here again while the other store is the authority (I9). Rows,
columns, and our own tables stay. May be killed anywhere and repeated.
"""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.columns import AddedColumn
from tripstore.backends.postgres.capture.functions.function import SEARCH_PATH, Function, refuse
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger, enable_always
from tripstore.backends.postgres.capture.install import OwnTables, capture_steps
from tripstore.backends.postgres.capture.names import FIRST, LAST, LOGGED
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.backends.postgres.wire.connections import rows

FUNCTION = "closed"
#: Before all other triggers, and no name of capture's: it stays when that goes.
ROWS, STATEMENTS = "0_closed_rows", "0_closed_statements"
assert not any(name.startswith((FIRST, LOGGED, LAST)) for name in (ROWS, STATEMENTS))

_EVENTS = "INSERT OR UPDATE OR DELETE"
_HAS = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
WHERE t.tgrelid = %s AND t.tgname = %s AND t.tgenabled = 'A' AND s.nspname = %s AND p.proname = %s)
"""


def closing_function() -> Function:
    """Refuses every write of every session; runs as the writer, for it touches nothing."""
    message = "% takes no more writes: the migration is complete."
    refused = refuse(GATE_SHUT, message, "Write through tripstore.", "TG_TABLE_NAME")
    return Function(FUNCTION, f"\nBEGIN\n  {refused}\nEND\n", SEARCH_PATH, as_owner=False)


def close_tables(connection: Connection, layout: Layout, patience: Patience = PATIENT) -> None:
    """Refuse every write of the mapped tables of transactions that begin after this."""
    for statement in closing_function().statements:
        rows(connection, statement)
    for table in sorted(layout.tables):
        shape = Shape.read(connection, table)
        if not _is_closed(connection, shape):
            under_lock(connection, table, "SHARE ROW EXCLUSIVE", _statements(shape), patience)
            reach("closing.table_closed")


def are_closed(connection: Connection, layout: Layout) -> bool:
    """Whether all mapped tables refuse writes for good."""
    shapes = [Shape.find(connection, table) for table in layout.tables]
    return all(shape is not None and _is_closed(connection, shape) for shape in shapes)


def remove_capture(connection: Connection, layout: Layout, patience: Patience = PATIENT) -> None:
    """Take triggers, gate and functions off tables that are closed."""
    if not are_closed(connection, layout):
        raise LegacyRefused("The mapped tables are not all closed.", hint="Without the gate they could be written.")
    for step in reversed(capture_steps(layout, patience=patience)):
        if not isinstance(step, OwnTables | AddedColumn):
            step.revert(connection)
            reach("closing.step_reverted")


def _is_closed(connection: Connection, shape: Shape) -> bool:
    # Row triggers are cloned to partitions, those of statements are not.
    wanted = [(shape.oid, ROWS), *((node.oid, STATEMENTS) for node in shape.nodes)]
    return all(rows(connection, _HAS, (oid, name, SCHEMA, FUNCTION))[0][0] for oid, name in wanted)


def _statements(shape: Shape) -> list[str]:
    """A row trigger for logical apply and for partitions to come, one of statements to refuse those without rows."""
    found = _on(shape.table, RowTrigger(ROWS, "BEFORE", _EVENTS, FUNCTION))
    for node in shape.nodes:
        found += _on(
            node.table, RowTrigger(STATEMENTS, "BEFORE", f"{_EVENTS} OR TRUNCATE", FUNCTION, level="STATEMENT")
        )
    return found


def _on(table: TableName, trigger: RowTrigger) -> list[str]:
    return [trigger.create(table), enable_always(trigger.name, table)]
