"""Takes capture off again: from every table its triggers, then our functions; our tables only when asked to."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.names import FIRST, LAST, LOGGED, WALKING, in_schema
from tripstore.backends.postgres.capture.plan import table_comment
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Clones go with the trigger that they were made from.
TRIGGERS = """
SELECT s.nspname, c.relname, t.tgname
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace ours ON ours.oid = p.pronamespace
WHERE t.tgrelid = ANY (%s::bigint[]::oid[]) AND t.tgparentid = 0 AND NOT t.tgisinternal AND ours.nspname = %s
  AND EXISTS (SELECT FROM unnest(%s::text[]) AS ours (prefix) WHERE pg_catalog.starts_with(t.tgname, prefix))
ORDER BY t.tgrelid, t.tgname
"""
FUNCTIONS = """
SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
WHERE s.nspname = %s AND pg_catalog.obj_description(p.oid, 'pg_proc') = %s ORDER BY 1
"""
STILL_USED = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = %s AND p.proname = %s)
"""


def drop_table_capture(connection: Connection, shape: Shape, patience: Patience = PATIENT) -> None:
    """All of one table's triggers in one transaction, then its functions."""
    oids = [node.oid for node in shape.nodes]
    found = rows(connection, TRIGGERS, (oids, SCHEMA, [FIRST, LOGGED, LAST, WALKING]))
    if found:
        drops = [f"DROP TRIGGER {quoted(trigger)} ON {TableName(schema, name).sql}" for schema, name, trigger in found]
        under_lock(connection, shape.table, "ACCESS EXCLUSIVE", drops, patience)
        reach("capture.triggers_dropped")
    for (function,) in rows(connection, FUNCTIONS, (SCHEMA, table_comment(shape))):
        drop_function(connection, function)


def drop_function(connection: Connection, name: str, arguments: str = "") -> None:
    """Others may still call it: the gate of the next table."""
    if not rows(connection, STILL_USED, (SCHEMA, name))[0][0]:
        rows(connection, f"DROP FUNCTION IF EXISTS {in_schema(name)}({arguments})")
