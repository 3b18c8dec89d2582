"""`LockedSight`: what stands under a key and around it, seen under the locks that keep it so until the transaction
ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.cell import Cell
from tripstore.backends.postgres.cells.fence import NO_ROLE, LegacyStanding
from tripstore.backends.postgres.cells.put.unmapped import lock_sql
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, quoted_int, quoted_uuid
from tripstore.backends.postgres.layout.layout import VERSION_MAX, Layout, RefKeyKind, quoted
from tripstore.backends.postgres.names import NO_FLOOR
from tripstore.backends.postgres.wire.wire import LegacyConnection

_SAY = "SET LOCAL tripstore.origin = '{origin}'; SET LOCAL search_path = {path}"
#: A put that holds one lock and waits for another may stand in a circle with a service, and must be the one that gives
#: way: long before deadlock_timeout, after which Postgres might choose the service.
GIVE_WAY_MILLISECONDS = 100
GIVE_WAY = f"SET LOCAL lock_timeout = '{GIVE_WAY_MILLISECONDS}ms'"
#: After that the put leaves those alone that queued behind it.
GIVE_WAY_PAUSE_SECONDS = 0.15


class LockedSight(NamedTuple):
    """What a put looks at."""

    row: Found | None
    #: What holds the very key, if it is not the row.
    at: Found | None
    #: The tombstone of the row that was here last.
    tomb: int | None
    #: The highest cell of ours in the place of the row: a child's that came before its parent had one.
    cell: int | None
    has_parent: bool
    #: Of the whole column; only where a put expects something of it.
    latest: Found | None

    @property
    def top(self) -> int | None:
        """Up to here everything is history."""
        last = self.tomb if self.row is None else self.row.ref_key
        return max((key for key in (last, self.cell) if key is not None), default=None)


def begin_sql(connection: LegacyConnection, standing: LegacyStanding = NO_ROLE) -> str:
    """Begin a put. Triggers of the company's find their tables as in its own sessions."""
    said = _SAY.format(origin=standing.origin, path=connection.search_path or "''")
    return "; ".join(["BEGIN", *standing.enter(connection), said])


class Lookout:
    """Looks at the keys of one mapped column."""

    def __init__(self, layout: Layout, rows: ColumnRows, standing: LegacyStanding) -> None:
        self._layout = layout
        self._standing = standing
        self._rows = rows
        self._column = rows.column
        self._kind = rows.column.ref_key.kind

    def look(self, connection: LegacyConnection, cell: Cell, expect_latest: Any) -> LockedSight:
        """Take the locks, then read in a statement of its own, which sees what was committed before they were given."""
        rows, key = self._rows, quoted_uuid(cell.row_key)
        number, _version = self._column.split(cell.ref_key)
        # An UPDATE that found no row may have locked one all the same: all take the locks in one order.
        locks = [*([] if connection.is_idle else ["ROLLBACK"]), begin_sql(connection, self._standing)]
        locks.append(lock_sql(cell.row_key))  # a parent and the children that come before it take turns
        if self._column.is_child and expect_latest is not ANY:
            locks.append(GIVE_WAY)
            locks.append(f"{self._parent(key)} FOR UPDATE")  # no child can be inserted below it
            locks.append(
                f"SELECT 1 FROM {rows.table} AS r WHERE r.{rows.uuid} = {key} ORDER BY r.{rows.number} DESC "
                "LIMIT 1 FOR NO KEY UPDATE"
            )
        locks.append(f"SELECT 1 FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))} FOR NO KEY UPDATE")
        is_row, of_child = rows.is_row(key, str(number)), number if self._kind is RefKeyKind.CHILD else 0
        tombs = " UNION ALL ".join(
            f"SELECT ref_key FROM {table} WHERE row_key = {key} AND column_name = {rows.name} AND n = {of_child} "
            f"AND ref_key > {NO_FLOOR}"
            for table in ("tripstore.tomb", "tripstore.kept")
        )
        parts = [
            f"SELECT 'row', {rows.current} FROM {rows.table} AS r WHERE {is_row}",
            *(f"SELECT 'at', own.* FROM ({each}) AS own" for each in rows.elsewhere(key, quoted_int(cell.ref_key))),
            f"SELECT 'tomb', max(ref_key), NULL, NULL, NULL, NULL FROM ({tombs}) AS tombs HAVING count(*) > 0",
        ]
        if self._column.is_child:
            parts.append(f"SELECT 'parent', 0, NULL, NULL, NULL, NULL FROM ({self._parent(key)}) AS parent")
        if self._kind is RefKeyKind.CHILD:
            first, last = self._column.compose(number, 0), self._column.compose(number, VERSION_MAX)
            parts.append(
                "SELECT 'cell', max(c.ref_key), NULL, NULL, NULL, NULL FROM tripstore.cell AS c "
                f"WHERE c.row_key = {key} AND c.column_name = {rows.name} AND c.ref_key BETWEEN {first} AND {last} "
                "HAVING count(*) > 0"
            )
        if expect_latest is not ANY:
            parts.append(f"SELECT 'latest', latest.* FROM ({rows.latest(key)}) AS latest")
        seen: dict[str, Found] = {}
        for kind, *found in connection.rows("; ".join([*locks, " UNION ALL ".join(parts)])):
            seen.setdefault(kind, Found(*found))
        tomb, own = (seen[kind].ref_key if kind in seen else None for kind in ("tomb", "cell"))
        return LockedSight(seen.get("row"), seen.get("at"), tomb, own, "parent" in seen, seen.get("latest"))

    def has_parent(self, connection: LegacyConnection, row_key: UUID) -> bool:
        """Look once more."""
        return bool(connection.rows(self._parent(quoted_uuid(row_key))))

    def _parent(self, key: str) -> str:
        parent = self._layout.row_key
        return f"SELECT 1 FROM {parent.table.sql} AS p WHERE p.{quoted(parent.uuid)} = {key}"
