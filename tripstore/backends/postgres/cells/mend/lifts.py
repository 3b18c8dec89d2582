"""`Lifts`: raises the version of a row and changes nothing else, so that capture has it carried once more."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemaless_core.cell.cell import CellKey
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put.locked import begin_sql
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import Found, quoted_int, quoted_uuid
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Of a lift of many rows: below Postgres' deadlock_timeout, so that no service's transaction is given up for it.
LOCK_MILLISECONDS = 100


class Lifts:
    """The rows of one legacy store, for an owner: it may set the version only while Postgres is the authority."""

    def __init__(
        self, database: LegacyDatabase, places: ColumnPlaces, standing: LegacyStanding, bodies: Bodies
    ) -> None:
        self._database = database
        self._places = places
        self._standing = standing
        self._bodies = bodies

    def lift(self, to: CellKey, deadline: Deadline) -> bool:
        """Give a row the version of this key; False: it is not there, or stands there or above already."""
        rows = self._places.columns[to.column_name]
        assert rows.version is not None  # facts have none
        number, version = rows.column.split(to.ref_key)
        key = quoted_uuid(to.row_key)
        update = (
            f"UPDATE {rows.table} AS r SET {rows.version} = {quoted_int(version)} "
            f"WHERE {rows.is_row(key, quoted_int(number))} AND r.{rows.version} < {quoted_int(version)} "
            f"AND NOT EXISTS ({rows.own.at(key, quoted_int(to.ref_key))}) RETURNING 1"
        )

        def lift(connection: LegacyConnection) -> bool:
            found = connection.rows(f"{begin_sql(connection, self._standing)}; {update}")
            reach("lift.before_commit")
            connection.rows("COMMIT")
            reach("lift.committed")
            return bool(found)

        return self._database.run(lift, deadline)

    def lift_many(self, targets: Sequence[CellKey], deadline: Deadline) -> dict[CellKey, bytes | None]:
        """The same of many rows of one column in one transaction; those that were lifted, with the canonical bytes that
        stand under their new keys. None: no bytes can be made of the row.

        It waits for no lock for longer than services bear, and for less than a circle of waiting lives: `LockTimeout`,
        and none was lifted.
        """
        rows, name = self._places.columns[targets[0].column_name], targets[0].column_name
        assert rows.version is not None
        values = [
            f"({quoted_uuid(to.row_key)}, {quoted_int(number)}, {quoted_int(version)}, {quoted_int(to.ref_key)})"
            for to in targets
            for number, version in [rows.column.split(to.ref_key)]
        ]
        # What it answers is the row as capture saw it, under a lock: no writer is between.
        update = (
            f"UPDATE {rows.table} AS r SET {rows.version} = v.version "
            f"FROM (VALUES {', '.join(values)}) AS v (row_key, number, version, ref_key) "
            f"WHERE {rows.is_row('v.row_key', 'v.number')} AND r.{rows.version} < v.version "
            f"AND NOT EXISTS ({rows.own.at('v.row_key', 'v.ref_key')}) "
            f"RETURNING v.row_key::text, v.ref_key, {rows.current}"
        )
        limit = f"SET LOCAL lock_timeout = '{LOCK_MILLISECONDS}ms'"

        def lift(connection: LegacyConnection) -> dict[CellKey, bytes | None]:
            found = connection.rows(f"{begin_sql(connection, self._standing)}; {limit}; {update}")
            reach("lift.before_commit")
            connection.rows("COMMIT")
            reach("lift.committed")
            stored = {CellKey(UUID(key), name, to): StoredRow(UUID(key), name, Found(*row)) for key, to, *row in found}
            self._bodies.prefetch(connection, stored.values())
            return {key: self._bytes(connection, key, each) for key, each in stored.items()}

        return self._database.run(lift, deadline)

    def _bytes(self, connection: LegacyConnection, key: CellKey, stored: StoredRow) -> bytes | None:
        if stored.found.ref_key != key.ref_key:
            return None  # a trigger of the company's gave it another version
        try:
            return self._bodies.data(connection, stored)
        except UnreadableRow:
            return None
