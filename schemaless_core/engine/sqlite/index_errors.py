"""The index-error list on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from schemaless_core.engine.base import FieldError
from schemaless_core.engine.sqlite.file import from_microseconds

# A field that parses is noted only where it had an error: see the same statement for MySQL.
PUT = """\
INSERT INTO index_error (index_name, version, shard, row_key, field, column_name, reason, at, ref_key)
SELECT :index_name, :version, :shard, :row_key, :field, :column_name, :reason, :at, :ref_key
 WHERE :reason IS NOT NULL OR EXISTS (SELECT 1 FROM index_error e WHERE e.index_name = :index_name
  AND e.version = :version AND e.shard = :shard AND e.row_key = :row_key AND e.field = :field)
ON CONFLICT (index_name, version, shard, row_key, field) DO UPDATE SET
 column_name = excluded.column_name, reason = excluded.reason, at = excluded.at, ref_key = excluded.ref_key
 WHERE excluded.ref_key >= index_error.ref_key"""
FIND = """\
SELECT index_name, version, shard, row_key, column_name, ref_key, field, reason, at FROM index_error
 WHERE index_name = ? AND version = ? AND reason IS NOT NULL ORDER BY shard, row_key, field LIMIT ?"""
COUNT = "SELECT COUNT(*) FROM index_error WHERE index_name = ? AND version = ? AND reason IS NOT NULL"
DROP = "DELETE FROM index_error WHERE index_name = ? AND version = ?"


def put_field_errors(connection: sqlite3.Connection, errors: Sequence[FieldError], now: int) -> None:
    newest = {error.key: error for error in sorted(errors, key=lambda error: error.ref_key)}
    connection.executemany(PUT, [error._asdict() | {"at": now} for error in newest.values()])


def find_field_errors(connection: sqlite3.Connection, index_name: str, version: int, limit: int) -> list[FieldError]:
    found = connection.execute(FIND, (index_name, version, limit))
    return [
        FieldError(name, number, shard, row_key, column_name, ref_key, field, reason, from_microseconds(at))
        for name, number, shard, row_key, column_name, ref_key, field, reason, at in found
    ]


def count_field_errors(connection: sqlite3.Connection, index_name: str, version: int) -> int:
    (count,) = connection.execute(COUNT, (index_name, version)).fetchone()
    return int(count)


def drop_field_errors(connection: sqlite3.Connection, index_name: str, version: int) -> None:
    connection.execute(DROP, (index_name, version))
