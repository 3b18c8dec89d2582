"""`FrozenRows`: rows at the last version there is, which no service can change or delete any more.

A session that was believed wrote it there. Such a row gets the version next to the last one it really had, and what was
captured of it above that is forgotten: the one case in which a version goes down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import UUID

from schemaless_core.cell.cell import REF_KEY_MAX, CellKey
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.names import LAST, LOGGED, slug
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put.locked import begin_sql
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import CHANGES, ColumnRows, quoted_int, quoted_uuid
from tripstore.backends.postgres.layout.layout import VERSION_MAX, MappedColumn, RefKeyKind, quoted
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.errors import TripstoreError

#: A try of the table's lock: below Postgres' deadlock_timeout, and no longer than services bear.
LOCK_MILLISECONDS = 300
TRIES = 20
PAUSE_SECONDS = 0.5
#: Where the row was deleted at what it jumped to, or moved, and came back above that.
ENDS = ("tripstore.tomb", "tripstore.kept")


class StaysFrozen(TripstoreError):
    """A row that cannot be given another version; it was left as it is."""


class FrozenRows:
    """Of one legacy store, for an owner."""

    def __init__(
        self,
        database: LegacyDatabase,
        places: ColumnPlaces,
        standing: LegacyStanding,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._database = database
        self._columns = places.columns
        self._standing = standing
        self._sleep = sleep

    def all(self, seconds: float) -> list[CellKey]:
        """Those of all mapped columns, each with its last version. Reads every row of the tables: so long for each."""
        found = list[CellKey]()
        for name, rows in self._columns.items():
            if rows.version is None:
                continue  # facts have none
            statement = (
                f"SELECT r.{rows.uuid}::pg_catalog.text, {rows.ref_key} FROM {rows.table} AS r "
                f"WHERE r.{rows.version} >= {last_version(rows.column)} ORDER BY 1, 2"
            )
            answers = self._rows(statement, seconds)
            found += [CellKey(UUID(key), name, ref_key) for key, ref_key in answers]
        return found

    def replaced(self, key: CellKey, limit: int) -> list[int]:
        """Ref keys that changes of this column up to here replaced: of a row older than capture nothing else tells."""
        of_row = (
            f"WHERE row_key = {quoted_uuid(key.row_key)} AND column_name = {self._columns[key.column_name].name} "
            f"AND ref_key <= {quoted_int(key.ref_key)} AND previous IS NOT NULL"
        )
        parts = " UNION ".join(f"SELECT previous FROM {table} {of_row}" for table in CHANGES)
        statement = f"{parts} ORDER BY 1 DESC LIMIT {int(limit)}"
        return self._database.run(
            lambda connection: [int(previous) for (previous,) in connection.rows(statement)],
            Deadline(self._database.settings.deadlines.scan_seconds),
        )

    def lower(self, key: CellKey, to: int, jumped: Sequence[int], *, is_first: bool, seconds: float) -> None:
        """Give the row that stands at this key the ref key `to`, as if it had never had those it jumped to.

        `is_first`: nothing stands right below `to`. One transaction, under a lock that the table's writers wait for.
        """
        for _ in range(TRIES):
            try:
                return self._database.run(
                    lambda connection: self._lowered(connection, key, to, jumped, is_first=is_first), Deadline(seconds)
                )
            except LockTimeout as timeout:
                waited = timeout
                self._sleep(PAUSE_SECONDS)
        raise StaysFrozen(
            f"{self._columns[key.column_name].table} is busy: {waited.message}",
            hint="Repeat the command when no long transaction is at work on the table.",
        )

    def _lowered(
        self, connection: LegacyConnection, key: CellKey, to: int, jumped: Sequence[int], *, is_first: bool
    ) -> None:
        rows = self._columns[key.column_name]
        number, version = rows.column.split(to)
        place = f"row_key = {quoted_uuid(key.row_key)} AND column_name = {rows.name}"
        of_jump = f"{place} AND ref_key IN ({', '.join(map(quoted_int, jumped))})"
        is_row = rows.is_row(quoted_uuid(key.row_key), quoted_int(number))
        begin = [
            begin_sql(connection, self._standing),
            f"SET LOCAL lock_timeout = '{LOCK_MILLISECONDS}ms'",
            "SET CONSTRAINTS ALL IMMEDIATE",  # what is deferred would be in the way of ALTER TABLE
            f"LOCK TABLE {rows.table} IN SHARE ROW EXCLUSIVE MODE",
            f"SELECT (SELECT count(*) FROM tripstore.cell WHERE {of_jump}), "
            f"EXISTS ({rows.at(quoted_uuid(key.row_key), quoted_int(to))})",
        ]
        ((own, is_there),) = connection.rows("; ".join(begin))
        if own:
            connection.rows("ROLLBACK")
            raise StaysFrozen(
                f"A cell of ({key.row_key}, {key.column_name}) was put at a ref key that it jumped to.",
                hint="What was put stays: insert the row anew under another key.",
            )
        if is_there:  # by another process of this command, for instance
            connection.rows("ROLLBACK")
            raise _changed(key, to)
        # Below the version that it is to have, unseen by capture; then up by one, as every change goes.
        lower = [
            _switch(rows, "DISABLE"),
            f"UPDATE {rows.table} AS r SET {rows.version} = {version - 1} "
            f"WHERE {is_row} AND {rows.ref_key} = {quoted_int(key.ref_key)}",
            _switch(rows, "ENABLE ALWAYS"),
            *(f"DELETE FROM {table} WHERE {of_jump}" for table in (*CHANGES, *ENDS)),
            f"UPDATE {rows.table} AS r SET {rows.version} = {version} "
            f"WHERE {is_row} AND r.{rows.version} = {version - 1}",
            f"UPDATE tripstore.queue SET previous = {'NULL' if is_first else 'previous'} "
            f"WHERE {place} AND ref_key = {quoted_int(to)} RETURNING 1",
        ]
        if connection.rows("; ".join(lower)) != [(1,)]:
            connection.rows("ROLLBACK")
            raise _changed(key, to)
        reach("frozen.before_commit")
        connection.rows("COMMIT")
        reach("frozen.lowered")

    def _rows(self, statement: str, seconds: float) -> list[tuple[str, int]]:
        return self._database.run(lambda connection: connection.rows(statement), Deadline(seconds))


def last_version(column: MappedColumn) -> int:
    return VERSION_MAX if column.ref_key.kind is RefKeyKind.CHILD else REF_KEY_MAX


def _changed(key: CellKey, to: int) -> StaysFrozen:
    return StaysFrozen(
        f"({key.row_key}, {key.column_name}) did not get the ref key {to:,}.",
        hint="It was changed meanwhile, or a trigger of the table gave it another version: repeat the command.",
    )


def _switch(rows: ColumnRows, how: str) -> str:
    """Capture of the versions of one column; what may write stays behind the gate."""
    part = slug(rows.column.name)
    triggers = (f"{LAST}{part}_update", f"{LOGGED}{part}_updated")
    return f"ALTER TABLE {rows.table} " + ", ".join(f"{how} TRIGGER {quoted(name)}" for name in triggers)
