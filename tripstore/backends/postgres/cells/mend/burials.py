"""`Burials`: tombstones for rows that are gone without one. Their partition was dropped, or truncated unseen.

A burial is what the row's deletion would have left: the tomb, the change that a relay carries, and of the parent's rows
the pair of id and UUID. Nothing is buried that is there, or has a tombstone or a cell of its own already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from schemaless_core.cell.cell import CellKey
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put.locked import GIVE_WAY_MILLISECONDS, begin_sql
from tripstore.backends.postgres.cells.put.unmapped import LOCKS_PER_BATCH, locks_within
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import ColumnRows, quoted_int, quoted_uuid
from tripstore.backends.postgres.layout.layout import LEGACY_ID, VERSION_MAX, Layout, RefKeyKind, quoted
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

# `lost`: what has neither row, cell nor tomb; that of a row before it may stand below. Both INSERTs come from it, so
# that a burial is whole.
_BURY = """\
WITH asked (row_key, n, ref_key) AS (VALUES {keys}),
lost AS (
    SELECT a.row_key, a.n, a.ref_key FROM asked AS a
    WHERE NOT EXISTS (SELECT 1 FROM {table} AS r WHERE {is_row}){more}
    AND NOT EXISTS (SELECT 1 FROM tripstore.tomb AS t
        WHERE t.row_key = a.row_key AND t.column_name = {name} AND t.n = a.n AND t.ref_key >= a.ref_key)
    AND NOT EXISTS (SELECT 1 FROM tripstore.cell AS c
        WHERE c.row_key = a.row_key AND c.column_name = {name} AND {is_cell})
), tombs AS (
    INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key)
    SELECT row_key, {name}, n, ref_key + 1 FROM lost
    ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key
)
INSERT INTO {changes.table} (row_key, column_name, ref_key, row, previous, {changes.columns})
SELECT row_key, {name}, ref_key + 1, NULL, ref_key, {changes.values} FROM lost
RETURNING row_key::pg_catalog.text, ref_key - 1"""
_KEEP_PAIR = """\
INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
SELECT %s::pg_catalog.uuid, %s, 0, %s WHERE NOT EXISTS (SELECT 1 FROM {table} AS p WHERE p.{uuid} = %s::pg_catalog.uuid)
ON CONFLICT DO NOTHING"""


class Burials:
    """Of one legacy store, for an owner."""

    def __init__(
        self, database: LegacyDatabase, layout: Layout, places: ColumnPlaces, standing: LegacyStanding
    ) -> None:
        self._database = database
        self._layout = layout
        self._places = places
        self._standing = standing

    def bury(self, column_name: str, keys: Sequence[CellKey], deadline: Deadline) -> set[CellKey]:
        """Give the rows of one column that held these cells last their tombs; the keys of those that got one.

        A put that has looked at such a row holds the row's advisory lock until its commit, and takes the table's after
        it: the burial does the same. An INSERT of a service has not seen the tomb, and its row would stand below it: so
        the table is locked against writers for the one statement, after the writers under way have ended. A burial
        waits for all its locks together no longer than services bear, and for less than a deadlock lives:
        `LockTimeout`, none was buried.
        """
        assert len(keys) <= LOCKS_PER_BATCH
        rows = self._places.columns[column_name]
        table = f"LOCK TABLE {rows.table} IN SHARE MODE"
        locks = locks_within((key.row_key for key in keys), table, milliseconds=GIVE_WAY_MILLISECONDS)
        statement = self._statement(rows, keys)

        def bury(connection: LegacyConnection) -> set[CellKey]:
            connection.rows(begin_sql(connection, self._standing))
            connection.rows(locks)
            reach("burial.locked")
            found = connection.rows(statement)
            reach("burial.before_commit")
            connection.rows("COMMIT")
            return {CellKey(UUID(key), column_name, ref_key) for key, ref_key in found}

        return self._database.run(bury, deadline)

    def keep_pairs(self, pairs: Mapping[UUID, bytes], deadline: Deadline) -> None:
        """Have the ids of rows that are gone resolved for ever, as those of deleted rows are."""
        source = self._layout.row_key
        statement = _KEEP_PAIR.format(table=source.table.sql, uuid=quoted(source.uuid))

        def keep(connection: LegacyConnection) -> None:
            connection.rows(begin_sql(connection, self._standing))
            for row_key, body in pairs.items():
                connection.rows(statement, (str(row_key), LEGACY_ID, body, str(row_key)))
            connection.rows("COMMIT")

        if pairs:
            self._database.run(keep, deadline)

    def _statement(self, rows: ColumnRows, keys: Collection[CellKey]) -> str:
        column = rows.column
        is_child = column.ref_key.kind is RefKeyKind.CHILD
        values = [
            f"({quoted_uuid(key.row_key)}, {quoted_int(column.split(key.ref_key)[0] if is_child else 0)},"
            f" {quoted_int(key.ref_key)})"
            for key in keys
        ]
        parent = self._layout.row_key
        is_parent = f"SELECT 1 FROM {parent.table.sql} AS p WHERE p.{quoted(parent.uuid)} = a.row_key"
        return _BURY.format(
            keys=", ".join(values),
            table=rows.table,
            is_row=f"r.{rows.uuid} = a.row_key" + (f" AND r.{rows.number} = a.n" if is_child else ""),
            # The facts of a row have one tombstone, when their parent has gone.
            more=f" AND NOT EXISTS ({is_parent})" if column.ref_key.kind is RefKeyKind.FACT else "",
            name=rows.name,
            is_cell=f"c.ref_key BETWEEN a.ref_key & ~{VERSION_MAX}::bigint AND a.ref_key | {VERSION_MAX}"
            if is_child
            else "true",
            changes=self._standing.changes,
        )
