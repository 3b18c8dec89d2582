"""`ColumnType`: what a physical column is, as far as it bounds the values of bodies: `strategy` keeps to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.wire.connections import rows

#: Columns as they are below all domains; a domain has the length or precision, and may refuse NULL.
_COLUMNS = """
WITH RECURSIVE below AS (
    SELECT a.attname, a.atttypid AS type, a.atttypmod AS modifier, a.attnotnull AS is_not_null
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT below.attname, t.typbasetype, t.typtypmod, below.is_not_null OR t.typnotnull
    FROM below JOIN pg_catalog.pg_type t ON t.oid = below.type AND t.typtype = 'd'
)
SELECT below.attname, pg_catalog.format_type(below.type, below.modifier), below.is_not_null,
    ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e
        WHERE e.enumtypid IN (t.oid, t.typelem) ORDER BY e.enumsortorder)
FROM below JOIN pg_catalog.pg_type t ON t.oid = below.type AND t.typtype <> 'd'
ORDER BY below.attname
"""

_SHOWN = re.compile(r"(?P<head>.+?)(?:\((?P<modifiers>[\d,-]+)\))?(?P<tail> with.*)?(?P<array>\[\])?")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type below all domains; of an array, the type of its elements."""

    name: str  #: As `format_type` writes it, without modifiers.
    modifiers: tuple[int, ...] = ()
    is_array: bool = False
    is_not_null: bool = False
    labels: tuple[str, ...] = ()  #: Of an enum.

    @classmethod
    def of(
        cls,
        shown: str,
        *,
        is_not_null: bool = False,
        labels: tuple[str, ...] = (),
    ) -> ColumnType:
        """The type that `format_type` shows like this."""
        parts = _SHOWN.fullmatch(shown)
        assert parts is not None  # any text has a head
        modifiers = tuple(int(number) for number in (parts["modifiers"] or "").split(",") if number)
        name = parts["head"] + (parts["tail"] or "")
        return cls(name, modifiers, parts["array"] is not None, is_not_null, labels)


def read_column_types(connection: Connection, table: TableName) -> dict[str, ColumnType]:
    """The types of a table's columns by name."""
    return {
        name: ColumnType.of(shown, is_not_null=is_not_null, labels=tuple(labels))
        for name, shown, is_not_null, labels in rows(connection, _COLUMNS, (table.sql,))
    }
