"""The index-error list of a server: which fields are missing from entries although their cells hold something."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import FieldError
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import utc, values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.transactions import transact

# A field that parses is noted only where it had an error: the note keeps an older cell that comes late from bringing
# the error back. Nothing is kept of the many fields that never had one.
PUT = """\
INSERT INTO {errors} (index_name, version, shard, row_key, field, column_name, reason, at, ref_key)
WITH w (index_name, version, shard, row_key, field, column_name, reason, ref_key) AS (VALUES ROWS)
SELECT w.index_name, w.version, w.shard, w.row_key, w.field, w.column_name, w.reason, UTC_TIMESTAMP(6), w.ref_key
 FROM w WHERE w.reason IS NOT NULL OR EXISTS (SELECT 1 FROM {errors} e WHERE e.index_name = w.index_name
  AND e.version = w.version AND e.shard = w.shard AND e.row_key = w.row_key AND e.field = w.field)
ON DUPLICATE KEY UPDATE
 column_name = IF(VALUES(ref_key) >= {errors}.ref_key, VALUES(column_name), {errors}.column_name),
 reason = IF(VALUES(ref_key) >= {errors}.ref_key, VALUES(reason), {errors}.reason),
 at = IF(VALUES(ref_key) >= {errors}.ref_key, VALUES(at), {errors}.at),
 ref_key = GREATEST(VALUES(ref_key), {errors}.ref_key)"""
FIND = """\
SELECT index_name, version, shard, row_key, column_name, ref_key, field, reason, at FROM {errors}
 WHERE index_name = %s AND version = %s AND reason IS NOT NULL ORDER BY shard, row_key, field LIMIT %s"""
COUNT = "SELECT COUNT(*) FROM {errors} WHERE index_name = %s AND version = %s AND reason IS NOT NULL"
DROP = "DELETE FROM {errors} WHERE index_name = %s AND version = %s"

ERRORS_PER_STATEMENT = 500
REASON_CHARACTERS_MAX = 200


def put_field_errors(
    connection: DeadlineConnection, names: Names, errors: Sequence[FieldError], deadline: Deadline
) -> None:
    """Note errors and what became of them, as far as nothing is known of a higher ref key."""
    template = PUT.format(errors=names.index_error).encode()
    newest = {error.key: error for error in sorted(errors, key=lambda error: error.ref_key)}
    ordered = [newest[key] for key in sorted(newest)]
    for first in range(0, len(ordered), ERRORS_PER_STATEMENT):
        rows = [_row(connection, error) for error in ordered[first : first + ERRORS_PER_STATEMENT]]
        transact(connection, [template.replace(b"VALUES ROWS", values_of(connection, rows))], deadline)


def find_field_errors(
    connection: DeadlineConnection, names: Names, index_name: str, version: int, limit: int
) -> list[FieldError]:
    with connection.cursor() as cursor:
        cursor.execute(FIND.format(errors=names.index_error), (index_name.encode(), version, limit))
        return [
            FieldError(name.decode(), number, shard, row_key, column_name, ref_key, field.decode(), reason, utc(at))
            for name, number, shard, row_key, column_name, ref_key, field, reason, at in cursor.fetchall()
        ]


def count_field_errors(connection: DeadlineConnection, names: Names, index_name: str, version: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(errors=names.index_error), (index_name.encode(), version))
        (count,) = cursor.fetchone() or (0,)
        return int(count)


def drop_field_errors(
    connection: DeadlineConnection, names: Names, index_name: str, version: int, deadline: Deadline
) -> None:
    statement = DROP.format(errors=names.index_error)
    transact(connection, [bound(connection, statement, (index_name.encode(), version))], deadline)


def _row(connection: DeadlineConnection, error: FieldError) -> bytes:
    reason = None if error.reason is None else error.reason[:REASON_CHARACTERS_MAX]
    values = (
        error.index_name.encode(),
        error.version,
        error.shard,
        error.row_key,
        error.field.encode(),
        error.column_name,
        reason,
        error.ref_key,
    )
    return bound(connection, ", ".join(["%s"] * len(values)), values)
