"""`PhysicalTypes`: what the columns of the company's tables are, as far as comparing their values in SQL goes.

Read once, when the first index query comes. A type that is not known here is `OTHER`: Python compares its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.layout.layout import Layout, TableName

#: Runs one statement and returns its rows.
Run = Callable[[str, Sequence[Any], Deadline], Sequence[Sequence[Any]]]

_TYPES = """
WITH RECURSIVE asked(schema_name, table_name, column_name) AS (
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])
), found(schema_name, table_name, column_name, type) AS (
    SELECT asked.schema_name, asked.table_name, asked.column_name, a.atttypid
    FROM asked
    JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema_name
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.table_name
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = asked.column_name AND NOT a.attisdropped
    UNION ALL
    SELECT found.schema_name, found.table_name, found.column_name, t.typbasetype
    FROM found JOIN pg_catalog.pg_type t ON t.oid = found.type AND t.typtype = 'd'
)
SELECT found.schema_name, found.table_name, found.column_name,
       CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END,
       t.typtype = 'e' OR t.typcategory = 'S',
       pg_catalog.current_setting('server_encoding') = 'UTF8'
FROM found JOIN pg_catalog.pg_type t ON t.oid = found.type AND t.typtype <> 'd'
"""


class Physical(StrEnum):
    """Types whose values SQL can compare as an index does. A domain counts as the type below it."""

    UUID = "uuid"
    TEXT = "text"  #: varchar too.
    WORDS = "words"  #: Text that compares otherwise: char(n), citext, enums.
    INT = "int"
    FLOAT8 = "float8"
    FLOAT4 = "float4"
    NUMERIC = "numeric"
    BOOLEAN = "bool"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP = "timestamp"
    OTHER = "other"


_BY_NAME = {
    "uuid": Physical.UUID,
    "text": Physical.TEXT,
    "varchar": Physical.TEXT,
    "int2": Physical.INT,
    "int4": Physical.INT,
    "int8": Physical.INT,
    "float4": Physical.FLOAT4,
    "float8": Physical.FLOAT8,
    "numeric": Physical.NUMERIC,
    "bool": Physical.BOOLEAN,
    "timestamptz": Physical.TIMESTAMPTZ,
    "timestamp": Physical.TIMESTAMP,
}


@dataclass(frozen=True)
class PhysicalTypes:
    """The types of the columns that a layout names, those of its lookups included."""

    by_column: Mapping[tuple[TableName, str], Physical]

    def of(self, table: TableName, column: str) -> Physical:
        return self.by_column.get((table, column), Physical.OTHER)

    @classmethod
    def read(cls, run: Run, layout: Layout, deadline: Deadline) -> PhysicalTypes:
        asked = sorted(_columns_of(layout))
        names = [table.schema for table, _ in asked], [table.name for table, _ in asked], [name for _, name in asked]
        return cls(
            {
                (TableName(schema, table), column): _physical(type_name, is_text, is_utf8)
                for schema, table, column, type_name, is_text, is_utf8 in run(_TYPES, names, deadline)
            }
        )


def _columns_of(layout: Layout) -> Iterable[tuple[TableName, str]]:
    found = {(layout.row_key.table, layout.row_key.id)}
    for column in layout.columns.values():
        for field in column.fields:
            found.add((column.table, field.column))
            if field.lookup is not None:
                found.add((field.lookup.table, field.lookup.value))
    return found


def _physical(type_name: str, is_text: bool, is_utf8: bool) -> Physical:
    found = _BY_NAME.get(type_name, Physical.WORDS if is_text else Physical.OTHER)
    # Text orders by its bytes in UTF-8, which no other encoding's are.
    return Physical.OTHER if found in (Physical.TEXT, Physical.WORDS) and not is_utf8 else found
