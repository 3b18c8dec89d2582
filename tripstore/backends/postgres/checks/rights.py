"""What `schema apply` will need of the role of `legacy.postgres`, asked before the first step; each with its GRANT."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout, TableName, quoted
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

# Postgres asks the same: a role that inherits the owner's rights may alter a table.
_OWNERS = """
SELECT n.nspname, c.relname, o.rolname, current_user
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
JOIN unnest(%s::text[], %s::text[]) AS wanted(nspname, relname) USING (nspname, relname)
WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') ORDER BY 1, 2
"""
_SCHEMAS = """
SELECT n.nspname, current_user FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = ANY (%s::text[]) AND NOT pg_catalog.has_schema_privilege(n.oid, 'CREATE') ORDER BY 1
"""
_DATABASE = f"""
SELECT pg_catalog.current_database(), current_user
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{SCHEMA}')
    AND NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
"""


def check_rights(connection: Connection, layout: Layout, *, indexed: set[TableName]) -> Iterator[Complaint]:
    """For a layout that has steps to do. `indexed`: the tables that get an index, which is made in their schema."""
    tables = sorted(layout.tables, key=str)
    names = [table.schema for table in tables], [table.name for table in tables]
    for schema, name, owner, role in rows(connection, _OWNERS, names):
        reason = f"{role} may not alter it: only its owner {owner} may"
        yield error(str(TableName(schema, name)), reason, f"GRANT {quoted(owner)} TO {quoted(role)};")
    schemas = sorted({table.schema for table in indexed} | {SCHEMA})
    for schema, role in rows(connection, _SCHEMAS, (schemas,)):
        reason = f"{role} may not create anything in it"
        yield error(f"schema {schema}", reason, f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {quoted(role)};")
    for database, role in rows(connection, _DATABASE):
        reason = f"{role} may not create the schema {SCHEMA}"
        yield error(f"database {database}", reason, f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)};")
