"""`AddedColumn`: the version column of a table, and the json column for what no other holds, when they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, literal, under_lock
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeyKind, TableName, quoted
from tripstore.backends.postgres.wire.connections import rows

#: Its presence says that the column is ours to drop.
COMMENT = "Added by tripstore."

COLUMN = """
SELECT pg_catalog.col_description(a.attrelid, a.attnum) FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = %s AND c.relname = %s AND a.attname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A step. A constant default writes no row: it takes a moment, on a table of any size."""

    table: TableName
    name: str
    type: str
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"column {self.name} of {self.table}"

    def is_done(self, connection: Connection) -> bool:
        return bool(self._comments(connection))

    def statements(self) -> Sequence[str]:
        return [
            f"ALTER TABLE {self.table.sql} ADD COLUMN IF NOT EXISTS {quoted(self.name)} {self.type}",
            f"COMMENT ON COLUMN {self.table.sql}.{quoted(self.name)} IS {literal(COMMENT)}",
        ]

    def apply(self, connection: Connection, progress: Progress) -> None:
        under_lock(connection, self.table, "ACCESS EXCLUSIVE", self.statements(), self.patience)
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        """A column of the company's stays."""
        if self._comments(connection) == [COMMENT]:
            drop = f"ALTER TABLE {self.table.sql} DROP COLUMN {quoted(self.name)}"
            under_lock(connection, self.table, "ACCESS EXCLUSIVE", [drop], self.patience)

    def _comments(self, connection: Connection) -> list[str | None]:
        return [row[0] for row in rows(connection, COLUMN, (*self.table, self.name))]


def added_columns(layout: Layout, patience: Patience = PATIENT) -> list[AddedColumn]:
    steps: dict[tuple[TableName, str], AddedColumn] = {}
    for column in layout.columns.values():
        for name, type_name in _wanted(column):
            steps.setdefault((column.table, name), AddedColumn(column.table, name, type_name, patience))
    return list(steps.values())


def _wanted(column: MappedColumn) -> list[tuple[str, str]]:
    wanted = []
    if column.ref_key.version is not None:
        is_child = column.ref_key.kind is RefKeyKind.CHILD
        wanted.append((column.ref_key.version, "int NOT NULL DEFAULT 0" if is_child else "bigint NOT NULL DEFAULT 1"))
    if column.extra is not None:
        wanted.append((column.extra, "json"))
    return wanted
