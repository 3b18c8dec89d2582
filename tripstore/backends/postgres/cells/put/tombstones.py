"""`Tombstones`: puts of tombstones above everything there is of a row. The row goes; its tomb has the ref key put."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put.locked import GIVE_WAY, LockedSight
from tripstore.backends.postgres.cells.put.unmapped import UnmappedCell, store
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, quoted_uuid
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.layout.layout import RefKeyKind, TombstonePolicy
from tripstore.backends.postgres.wire.translation import Again
from tripstore.backends.postgres.wire.wire import LegacyConnection

_STORE_TOMBSTONE = (
    "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s::pg_catalog.uuid, %s, %s, %s)"
)
_RAISE_TOMB = """\
INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key) VALUES (%s::pg_catalog.uuid, %s, %s, %s)
ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = EXCLUDED.ref_key WHERE t.ref_key < EXCLUDED.ref_key"""
_SAY_TOMBSTONE = "SELECT pg_catalog.set_config('tripstore.tombstone', %s, true)"
_IS_CAPTURED = """\
SELECT 1 FROM tripstore.tomb WHERE row_key = %s::pg_catalog.uuid AND column_name = %s AND n = %s AND ref_key = %s"""
_TOMBSTONE_CHANGE = """\
INSERT INTO {changes.table} (row_key, column_name, ref_key, row, previous, {changes.columns})
VALUES (%s::pg_catalog.uuid, %s, %s, NULL, %s, {changes.values})"""


class Tombstones:
    """Tombstones of one mapped column, within the caller's transaction."""

    def __init__(self, rows: ColumnRows, children: Sequence[ColumnRows], standing: LegacyStanding) -> None:
        self._rows = rows
        self._standing = standing
        self._column = rows.column
        self._kind = rows.column.ref_key.kind
        self._children = children
        self._change = _TOMBSTONE_CHANGE.format(changes=standing.changes)

    def put(self, connection: LegacyConnection, new: UnmappedCell, seen: LockedSight) -> None:
        """A tombstone above everything: the row goes, and its tomb has this ref key."""
        cell = new.cell
        number, _version = self._column.split(cell.ref_key)
        key = quoted_uuid(cell.row_key)
        if seen.row is not None:
            self._delete(connection, new, seen.row, number)
            return
        self._wait_for_writers(connection, new)
        if self._kind is RefKeyKind.FACT:
            facts = connection.rows(self._rows.latest_row(key))
            if facts and cell.ref_key < facts[0][0]:
                store(connection, new, self._standing)
                return
            if facts:
                hint = "Delete the parent, or map the column with a version."
                raise Unrepresentable("", "facts are deleted with their parent only", hint=hint)
            number = 0
        row_key, name, ref_key = str(cell.row_key), cell.column_name, cell.ref_key
        connection.rows(_RAISE_TOMB, (row_key, name, number if self._kind is RefKeyKind.CHILD else 0, ref_key))
        connection.rows(_STORE_TOMBSTONE, (row_key, name, ref_key, TOMBSTONE))
        connection.rows(self._change, (row_key, name, ref_key, seen.tomb))

    def _wait_for_writers(self, connection: LegacyConnection, new: UnmappedCell) -> None:
        """Where no row is, no lock of a row keeps others out: an INSERT under way has not seen this tomb, and its row
        would stand below it, deleted for every mirror. The table is locked for the few statements until the commit.
        """
        rows, number = self._rows, self._column.split(new.cell.ref_key)[0]
        is_row = rows.is_row(quoted_uuid(new.cell.row_key), str(number))
        found = connection.rows(
            f"{GIVE_WAY}; LOCK TABLE {rows.table} IN SHARE MODE; SELECT 1 FROM {rows.table} AS r WHERE {is_row}"
        )
        if found:
            raise Again("the row was inserted meanwhile")

    def _delete(self, connection: LegacyConnection, new: UnmappedCell, row: Found, number: int) -> None:
        cell, rows, key = new.cell, self._rows, quoted_uuid(new.cell.row_key)
        if self._children:  # no session inserts a child from here on
            connection.rows(f"{GIVE_WAY}; SELECT 1 FROM {rows.table} AS r WHERE r.{rows.uuid} = {key} FOR UPDATE")
        for child in self._children:
            self._clear(connection, child, key)
        row_key, name = str(cell.row_key), cell.column_name
        connection.rows(_SAY_TOMBSTONE, (f"{cell.ref_key} {name}",))
        if not connection.rows(f"DELETE FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))} RETURNING 1"):
            hint = f"A deleted row must go; look at the triggers of {self._column.table}."
            raise LegacyRefused(
                f"A trigger or policy of {self._column.table} keeps the row that is deleted.", hint=hint
            )
        reach("put.deleted")
        of_child = number if self._kind is RefKeyKind.CHILD else 0
        if not connection.rows(_IS_CAPTURED, (row_key, name, of_child, cell.ref_key)):
            # The layout ignores deletions; but this one was put.
            connection.rows(_RAISE_TOMB, (row_key, name, of_child, cell.ref_key))
            connection.rows(self._change, (row_key, name, cell.ref_key, row.ref_key))

    def _clear(self, connection: LegacyConnection, child: ColumnRows, key: str) -> None:
        """Rows of another column stand in the way of the parent's tombstone, unless the layout says to delete them."""
        column = child.column
        if not connection.rows(f"SELECT 1 FROM {child.table} AS r WHERE r.{child.uuid} = {key} LIMIT 1"):
            return
        if self._column.on_tombstone is not TombstonePolicy.DELETE:
            raise LegacyRefused(
                f"The row has rows of {column.name}, which a tombstone of {self._column.name} would take with it.",
                hint="Put tombstones on them first, or write on_tombstone: delete into the layout.",
            )
        if column.ref_key.kind is RefKeyKind.CHILD:  # facts go by their foreign key's cascade
            connection.rows(f"DELETE FROM {child.table} AS r WHERE r.{child.uuid} = {key}")
