"""Which tables still get direct reads and writes, and from whom, as the database itself remembers it.

Writers stand in capture's queue and log, by application name and role. Readers leave no trace but in
pg_stat_statements, where it is installed: by role and statement, since its last reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.audit.findings import Access
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.sql.reader import sql_uses
from tripstore.backends.postgres.capture.functions.changes import FORGED
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import rows

STATEMENT_LENGTH_MAX = 120

_WRITERS = """
SELECT column_name, coalesce(application, ''), coalesce(role, ''), count(*), max(at),
    count(*) FILTER (WHERE origin = %(forged)s)
FROM (
    SELECT column_name, application, role, at, origin FROM tripstore.queue
    WHERE coalesce(origin, '') IN ('', %(forged)s) AND at >= %(since)s
    UNION ALL
    SELECT column_name, application, role, at, origin FROM tripstore.log
    WHERE coalesce(origin, '') IN ('', %(forged)s) AND at >= %(since)s
) AS change
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3
"""
_FIRST_CHANGE = "SELECT least((SELECT min(at) FROM tripstore.queue), (SELECT min(at) FROM tripstore.log))"
_STATEMENTS_SCHEMA = """
SELECT namespace.nspname FROM pg_catalog.pg_extension AS extension
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = extension.extnamespace
WHERE extension.extname = 'pg_stat_statements'
"""
_STATEMENTS = """
SELECT role.rolname, statement.query, sum(statement.calls)::bigint, sum(statement.rows)::bigint
FROM {schema}.pg_stat_statements AS statement
JOIN pg_catalog.pg_database AS here ON here.oid = statement.dbid AND here.datname = pg_catalog.current_database()
JOIN pg_catalog.pg_roles AS role ON role.oid = statement.userid
WHERE statement.query NOT LIKE '%%tripstore.%%'
GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class ForeignWriter:
    """Changes of one table's rows by SQL that is not ours."""

    table: str
    application: str
    role: str
    changes: int
    last_at: datetime
    #: Of these, where the session said it were tripstore, and its role may not.
    forged: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A kind of statement that uses a table; its values are left out by Postgres itself."""

    table: str
    access: Access
    role: str
    calls: int
    rows: int
    statement: str


@dataclass(frozen=True, slots=True)
class DatabaseAudit:
    """What the database remembers."""

    writers: tuple[ForeignWriter, ...]
    #: The oldest change that is still known; None: there is none.
    known_since: datetime | None
    #: None: pg_stat_statements is not there, so nothing is known of readers.
    statements: tuple[Statement, ...] | None


def audit_database(connection: Connection, layout: Layout, since: datetime | None = None) -> DatabaseAudit:
    """Ask the database which programs still use the tables of a layout without us."""
    found = rows(connection, _WRITERS, {"since": since or "-infinity", "forged": FORGED})
    writers = tuple(
        ForeignWriter(str(layout.columns[column].table), application, role, changes, last_at, forged)
        for column, application, role, changes, last_at, forged in found
        if column in layout.columns
    )
    ((known_since,),) = rows(connection, _FIRST_CHANGE)
    return DatabaseAudit(writers, known_since, _statements(connection, layout))


def _statements(connection: Connection, layout: Layout) -> tuple[Statement, ...] | None:
    schemas = rows(connection, _STATEMENTS_SCHEMA)
    if not schemas:
        return None
    tables = LegacyTables(LegacyTable(table.schema, table.name) for table in layout.tables)
    question = sql.SQL(_STATEMENTS).format(schema=sql.Identifier(schemas[0][0])).as_string(connection)
    found: list[Statement] = []
    for role, query, calls, touched in rows(connection, question, ()):
        uses = {(str(use.table), use.access) for use in sql_uses(query, tables, is_certain=True).uses}
        found += [Statement(table, access, role, calls, touched, _short(query)) for table, access in uses]
    return tuple(sorted(found, key=lambda each: (-each.calls, each.table, each.access, each.role, each.statement)))


def _short(query: str) -> str:
    text = " ".join(query.split())
    return text if len(text) <= STATEMENT_LENGTH_MAX else f"{text[:STATEMENT_LENGTH_MAX]}…"
