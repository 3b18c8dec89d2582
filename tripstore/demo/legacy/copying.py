"""COPY: many rows in one statement, in Postgres' text format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from io import StringIO

from psycopg2 import sql

from tripstore.demo.legacy.connections import Cursor
from tripstore.demo.legacy.fictions import Row

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
COPY = sql.SQL("COPY public.{table} ({columns}) FROM STDIN")


def copy_rows(cursor: Cursor, table: str, rows: Sequence[Row]) -> int:
    """Copy rows that all have the same columns, and return how many."""
    if not rows:
        return 0
    columns = list(rows[0])
    statement = COPY.format(table=sql.Identifier(table), columns=sql.SQL(", ").join(map(sql.Identifier, columns)))
    cursor.copy_expert(statement, StringIO("".join(_line(row[column] for column in columns) for row in rows)))
    return len(rows)


def _line(values: Iterable[object]) -> str:
    return "\t".join("\\N" if value is None else _text(value) for value in values) + "\n"


def _text(value: object) -> str:
    match value:
        case str():
            return value.translate(ESCAPES)
        case bytes():
            return "\\\\x" + value.hex()
        case dict():
            return json.dumps(value, ensure_ascii=False).translate(ESCAPES)
        case list():
            return "{" + ",".join(map(_item, value)).translate(ESCAPES) + "}"
    return str(value)


def _item(value: object) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
