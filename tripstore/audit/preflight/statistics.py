"""Kinds of statements as pg_stat_statements counts them: asked of the database, or in a CSV of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.errors import InvalidRequest
from tripstore.audit.preflight.asked import Asked
from tripstore.backends.postgres.wire.connections import rows

SOURCE = "pg_stat_statements"
_NO_RIGHT = "<insufficient privilege>"

_SCHEMA = """
SELECT s.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace s ON s.oid = e.extnamespace
WHERE e.extname = 'pg_stat_statements'
"""
_STATEMENTS = """
SELECT statement.query, sum(statement.calls)::bigint, sum(statement.rows)::bigint
FROM {schema}.pg_stat_statements AS statement
JOIN pg_catalog.pg_database AS here ON here.oid = statement.dbid AND here.datname = pg_catalog.current_database()
GROUP BY 1 ORDER BY 2 DESC, 1
"""
_FORGOTTEN = "SELECT dealloc FROM {schema}.pg_stat_statements_info"


@dataclass(frozen=True, slots=True)
class Counted:
    """What the extension knows, and how often it made room by forgetting the rarest kinds."""

    asked: tuple[Asked, ...]
    forgotten: int


def counted_statements(connection: Connection) -> Counted:
    """Ask the database; raise `InvalidRequest` where the extension is not installed."""
    schemas = rows(connection, _SCHEMA)
    if not schemas:
        raise InvalidRequest(
            "pg_stat_statements is not installed in this database, and no file is named.",
            hint="CREATE EXTENSION pg_stat_statements, or give a FILE of statements.",
        )
    schema = sql.Identifier(schemas[0][0])
    found = rows(connection, sql.SQL(_STATEMENTS).format(schema=schema).as_string(connection), ())
    ((forgotten,),) = rows(connection, sql.SQL(_FORGOTTEN).format(schema=schema).as_string(connection), ())
    return Counted(tuple(_asked(query, calls, count, SOURCE) for query, calls, count in found), forgotten)


def is_statistics(text: str) -> bool:
    """Whether a text is a CSV of the view: its head names the query."""
    head = next(csv.reader(io.StringIO(text)), [])
    return "query" in [name.strip() for name in head] and len(head) > 1


def csv_statistics(text: str, name: str) -> Iterator[Asked]:
    """What `COPY (SELECT query, calls, rows FROM pg_stat_statements) TO … CSV HEADER` writes, or with more columns."""
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader(io.StringIO(text))
    begin = 2
    for row in reader:
        calls, count = row.get("calls") or "1", row.get("rows")
        try:
            yield _asked(row["query"] or "", int(calls), int(count) if count else None, f"{name}:{begin}")
        except ValueError:
            yield Asked(row["query"] or "", f"{name}:{begin}", unreadable="its calls or rows are no number")
        begin = reader.line_num + 1


def _asked(query: str, calls: int, count: int | None, where: str) -> Asked:
    reason = "the role may not see statements of others (GRANT pg_read_all_stats)" if query == _NO_RIGHT else None
    return Asked(query.strip().rstrip(";"), where, calls, count, reason)
