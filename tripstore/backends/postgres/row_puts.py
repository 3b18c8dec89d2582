"""`RowPuts`: puts of cells of one mapped column, under the row's lock. The rules of versions (DESIGN, section 8).

A higher ref key moves the row in place. The row's own compares bytes. A lower one compares with history, or becomes
history, and leaves the row alone. Where no row is, its tomb says which ref keys are history; above it the row is
inserted, and below it never: a late mirror must not bring back what was deleted. The row that came of a write is
compared with what was asked for, and taken back when it is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from schemaless_core.answers import ANY
from schemaless_core.canonical import from_canonical
from schemaless_core.cell import Cell
from schemaless_core.errors import CellConflict
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.bodies import Bodies, Stored, difference
from tripstore.backends.postgres.codec import TOMBSTONE
from tripstore.backends.postgres.codecs import Codecs
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.fields import FieldNames
from tripstore.backends.postgres.free import NewCell, lock_sql
from tripstore.backends.postgres.layout import Layout, MappedColumn, RefKeyKind, TombstonePolicy, quoted
from tripstore.backends.postgres.rows import CURRENT, ColumnRows, Found
from tripstore.backends.postgres.translation import Again, LockTimeout, ValueRefused
from tripstore.backends.postgres.wire import LegacyConnection

_BEGIN = "BEGIN; SET LOCAL tripstore.origin = 'facade'; SET LOCAL search_path = {path}"
# Who holds the parent and waits for a child's number may stand in a circle with a service, and must be the one who
# gives way: long before deadlock_timeout, after which Postgres might choose the service.
_GIVE_WAY = "SET LOCAL lock_timeout = '100ms'"
_STORE = """\
INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s::uuid, %s, %s, %s);
INSERT INTO tripstore.queue (row_key, column_name, ref_key, row, origin) VALUES (%s::uuid, %s, %s, %s, 'facade')"""
_STORE_TOMBSTONE = "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s::uuid, %s, %s, %s)"
_RAISE_TOMB = """\
INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key) VALUES (%s::uuid, %s, %s, %s)
ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = EXCLUDED.ref_key WHERE t.ref_key < EXCLUDED.ref_key"""
_SAY_TOMBSTONE = "SELECT pg_catalog.set_config('tripstore.tombstone', %s, true)"
_IS_CAPTURED = """\
SELECT 1 FROM tripstore.tomb WHERE row_key = %s::uuid AND column_name = %s AND n = %s AND ref_key = %s"""
_QUEUE_TOMBSTONE = """\
INSERT INTO tripstore.queue (row_key, column_name, ref_key, row, origin, previous)
VALUES (%s::uuid, %s, %s, NULL, 'facade', %s)"""

_CAME_BEFORE = """\
SELECT c.ref_key, c.body FROM tripstore.cell AS c WHERE c.row_key = %s::uuid AND c.column_name = %s
AND NOT EXISTS (SELECT FROM tripstore.tomb AS t WHERE t.row_key = c.row_key AND t.column_name = c.column_name
                AND t.ref_key >= c.ref_key) ORDER BY c.ref_key"""
# Capture queues the row anew, under the same key.
_TAKE_OUT = """\
DELETE FROM tripstore.cell WHERE row_key = %s::uuid AND column_name = %s AND ref_key = %s;
DELETE FROM tripstore.queue WHERE row_key = %s::uuid AND column_name = %s AND ref_key = %s"""


class Outcome(NamedTuple):
    """What became of a put."""

    is_created: bool


class _Seen(NamedTuple):
    """What stands under a key and around it, all locked."""

    row: Found | None
    #: What holds the very key, if it is not the row.
    at: Found | None
    tomb: int | None
    has_parent: bool
    latest: Found | None


class RowPuts:
    """Puts of one mapped column."""

    def __init__(self, layout: Layout, rows: ColumnRows, children: Sequence[RowPuts], codecs: Codecs) -> None:
        self._layout = layout
        self._rows = self.rows = rows
        self._column: MappedColumn = rows.column
        self._kind = rows.column.ref_key.kind
        #: Of the parent column: the children, which go with it and may have come before it.
        self._children = children
        self._codecs = codecs
        self._bodies = Bodies(codecs)
        self._fields = FieldNames(rows.column)

    def put(self, connection: LegacyConnection, new: NewCell, expect_latest: Any) -> Outcome:
        """One attempt; `Again` when somebody was faster."""
        if self._kind is RefKeyKind.CHILD:
            self._column.compose(*self._column.split(new.cell.ref_key))  # refuses what no row can be
        texts = self._texts(connection, new)
        try:
            if texts is not None and self._advanced(connection, new, texts, expect_latest):
                return self._committed(connection)
            return self._settled(connection, new, texts, expect_latest)
        except LockTimeout as timeout:
            if self._column.is_child and expect_latest is not ANY:
                raise Again(timeout.message) from timeout
            raise
        except ValueRefused as refused:
            raise self._fields.named(connection, refused, texts or {}) from refused

    def adopt(self, connection: LegacyConnection, parent: Cell) -> None:
        """Move cells that came before their parent into the table; what its rows cannot hold stays a cell."""
        found = connection.rows(_CAME_BEFORE, (str(parent.row_key), self._column.name))
        newest = {self._column.split(ref_key)[0]: (ref_key, bytes(body)) for ref_key, body in found}
        for ref_key, data in newest.values():
            if data != TOMBSTONE:
                cell = Cell(parent.row_key, self._column.name, ref_key, from_canonical(data))
                self._adopt(connection, NewCell(cell, data))

    def _adopt(self, connection: LegacyConnection, new: NewCell) -> None:
        connection.rows("SAVEPOINT adopted")
        key = (str(new.cell.row_key), new.cell.column_name, new.cell.ref_key)
        try:
            connection.rows(_TAKE_OUT, (*key, *key))
            self._insert(connection, new, self._texts(connection, new) or {})
        except (Unrepresentable, LegacyRefused, Again):
            connection.rows("ROLLBACK TO adopted")

    def _texts(self, connection: LegacyConnection, new: NewCell) -> dict[str, str | None] | None:
        """What the captured columns would hold; None: a tombstone."""
        if new.data == TOMBSTONE:
            return None
        self._codecs.prefetch_bodies(connection, self._column.name, [new.cell.body])
        return self._codecs.of(connection, CURRENT, self._column.name).row(new.cell.body)

    def _advanced(
        self, connection: LegacyConnection, new: NewCell, texts: dict[str, str | None], expect_latest: Any
    ) -> bool:
        """Move the row in place, in the packet that begins the transaction; False: it cannot be that simple."""
        is_conditional = expect_latest is not ANY
        if self._kind is RefKeyKind.FACT or expect_latest is None or (is_conditional and self._column.is_child):
            return False
        update, parameters = self._update(new.cell, texts, expect_latest if is_conditional else None)
        found = connection.rows(f"{_escaped(_begin(connection))}; {update}", parameters)
        if not found:
            return False
        reach("put.updated")
        self._compare(connection, new, Found(*found[0]))
        return True

    def _settled(
        self, connection: LegacyConnection, new: NewCell, texts: dict[str, str | None] | None, expect_latest: Any
    ) -> Outcome:
        """Lock, look, and do what the rules of versions say."""
        cell = new.cell
        seen = self._look(connection, cell, expect_latest)
        held = seen.row if seen.row is not None and seen.row.ref_key == cell.ref_key else seen.at
        if held is not None:
            return self._equal(connection, new, held)
        if expect_latest is not ANY and (seen.latest.ref_key if seen.latest else None) != expect_latest:
            stored = None if seen.latest is None else self._cell(connection, cell, seen.latest)
            raise CellConflict(cell, stored, expected=expect_latest)
        top = seen.row.ref_key if seen.row is not None else seen.tomb
        if top is not None and cell.ref_key <= top:  # equal: a deletion that was ignored left no tombstone
            self._store(connection, new)
        elif texts is None:
            self._bury(connection, new, seen)
        elif seen.row is not None:
            self._move(connection, new, texts)
        elif self._column.is_child and not seen.has_parent:
            self._store(connection, new)
        else:
            self._insert(connection, new, texts)
        return self._committed(connection)

    def _look(self, connection: LegacyConnection, cell: Cell, expect_latest: Any) -> _Seen:
        """Take the locks, then read in a statement of its own, which sees what was committed before they were given."""
        rows, key = self._rows, _key(cell)
        number, _version = self._column.split(cell.ref_key)
        # An UPDATE that found no row may have locked one all the same: the locks are taken in one order by everybody.
        locks = [_begin(connection)] if connection.is_idle else ["ROLLBACK", _begin(connection)]
        locks.append(lock_sql(cell.row_key))  # a parent and the children that come before it take turns
        if self._column.is_child and expect_latest is not ANY:
            locks.append(_GIVE_WAY)
            locks.append(f"{self._parent(key)} FOR UPDATE")  # no child can be inserted below it
            locks.append(
                f"SELECT 1 FROM {rows.table} AS r WHERE r.{rows.uuid} = {key} ORDER BY r.{rows.number} DESC "
                "LIMIT 1 FOR NO KEY UPDATE"
            )
        locks.append(f"SELECT 1 FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))} FOR NO KEY UPDATE")
        is_row, of_child = rows.is_row(key, str(number)), number if self._kind is RefKeyKind.CHILD else 0
        tombs = " UNION ALL ".join(
            f"SELECT ref_key FROM {table} WHERE row_key = {key} AND column_name = {rows.name} AND n = {of_child}"
            for table in ("tripstore.tomb", "tripstore.kept")
        )
        parts = [
            f"SELECT 'row', {rows.current} FROM {rows.table} AS r WHERE {is_row}",
            *(f"SELECT 'at', own.* FROM ({each}) AS own" for each in rows.elsewhere(key, _number(cell.ref_key))),
            f"SELECT 'tomb', max(ref_key), NULL, NULL, NULL, NULL FROM ({tombs}) AS tombs HAVING count(*) > 0",
        ]
        if self._column.is_child:
            parts.append(f"SELECT 'parent', 0, NULL, NULL, NULL, NULL FROM ({self._parent(key)}) AS parent")
        if expect_latest is not ANY:
            parts.append(f"SELECT 'latest', latest.* FROM ({rows.latest(key)}) AS latest")
        seen: dict[str, Found] = {}
        for kind, *found in connection.rows("; ".join([*locks, " UNION ALL ".join(parts)])):
            seen.setdefault(kind, Found(*found))
        tomb_found = seen.get("tomb")
        return _Seen(
            seen.get("row"),
            seen.get("at"),
            None if tomb_found is None else tomb_found.ref_key,
            "parent" in seen,
            seen.get("latest"),
        )

    def _equal(self, connection: LegacyConnection, new: NewCell, held: Found) -> Outcome:
        """The key is taken: by an equal cell, or in conflict."""
        stored = Stored(new.cell.row_key, new.cell.column_name, held)
        self._bodies.prefetch(connection, (stored,))
        if self._bodies.data(connection, stored) != new.data:
            raise CellConflict(new.cell, self._bodies.cell(connection, stored))
        connection.rows("ROLLBACK")
        return Outcome(is_created=False)

    def _move(self, connection: LegacyConnection, new: NewCell, texts: dict[str, str | None]) -> None:
        update, parameters = self._update(new.cell, texts, None)
        found = connection.rows(update, parameters)
        if not found:
            raise Again("the row moved")
        self._compare(connection, new, Found(*found[0]))

    def _update(self, cell: Cell, texts: dict[str, str | None], expected: int | None) -> tuple[str, list[Any]]:
        """Set the captured columns and the version of a row whose version is lower."""
        rows, column = self._rows, self._column
        number, version = column.split(cell.ref_key)
        assert rows.version is not None  # facts are never changed
        values = {name: value for name, value in texts.items() if not self._is_key(name)}
        assignments = [f"{_escaped(quoted(name))} = %s" for name in values] + [
            f"{_escaped(rows.version)} = '{version}'"
        ]
        key = _key(cell)
        where = f"{rows.is_row(key, str(number))} AND r.{rows.version} < {_number(version)}"
        if expected is not None:
            where += f" AND r.{rows.version} = {_number(column.split(expected)[1])}"
        own = rows.own.at(key, _number(cell.ref_key))
        sql = (
            f"UPDATE {_escaped(rows.table)} AS r SET {', '.join(assignments)} "
            f"WHERE {_escaped(where)} AND NOT EXISTS ({_escaped(own)}) RETURNING {_escaped(rows.current)}"
        )
        return sql, list(values.values())

    def _insert(self, connection: LegacyConnection, new: NewCell, texts: dict[str, str | None]) -> None:
        """Insert the row, and read it once more: a tombstone that came meanwhile lifts it above its ref key."""
        cell, rows, column = new.cell, self._rows, self._column
        number, version = column.split(cell.ref_key)
        values: dict[str, Any] = {quoted(name): value for name, value in texts.items() if not self._is_key(name)}
        if rows.number is not None:
            values[rows.number] = number
        if rows.version is not None:
            values[rows.version] = version
        key = _key(cell)
        names = [rows.uuid, *values]
        markers = ["%s"] * len(values)
        source = f"SELECT {', '.join([key, *markers])}"
        if column.parent is not None:
            names.insert(0, quoted(column.parent))
            parent = self._layout.row_key
            source = (
                f"SELECT {', '.join(['p.' + _escaped(quoted(parent.id)), key, *markers])} "
                f"FROM {_escaped(parent.table.sql)} AS p WHERE p.{_escaped(quoted(parent.uuid))} = {key}"
            )
        row = f"SELECT {rows.current} FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))}"
        found = connection.rows(
            f"INSERT INTO {_escaped(rows.table)} ({_escaped(', '.join(names))}) {source}; {_escaped(row)}",
            list(values.values()),
        )
        reach("put.inserted")
        if not found or found[0][0] != cell.ref_key:
            raise Again("the row was deleted or lifted meanwhile")
        self._compare(connection, new, Found(*found[0]))
        for child in self._children:
            child.adopt(connection, cell)

    def _bury(self, connection: LegacyConnection, new: NewCell, seen: _Seen) -> None:
        """A tombstone above everything: the row goes, and its tomb has this ref key."""
        cell = new.cell
        number, _version = self._column.split(cell.ref_key)
        key = _key(cell)
        if seen.row is not None:
            self._delete(connection, new, seen.row, number)
            return
        if self._kind is RefKeyKind.FACT:
            facts = connection.rows(self._rows.latest_row(key)) if seen.has_parent else []
            if facts and cell.ref_key < facts[0][0]:
                self._store(connection, new)
                return
            if facts:
                hint = "Delete the parent, or map the column with a version."
                raise Unrepresentable("", "facts are deleted with their parent only", hint=hint)
            number = 0
        row_key, name, ref_key = str(cell.row_key), cell.column_name, cell.ref_key
        connection.rows(_RAISE_TOMB, (row_key, name, number if self._kind is RefKeyKind.CHILD else 0, ref_key))
        connection.rows(_STORE_TOMBSTONE, (row_key, name, ref_key, TOMBSTONE))
        connection.rows(_QUEUE_TOMBSTONE, (row_key, name, ref_key, seen.tomb))

    def _delete(self, connection: LegacyConnection, new: NewCell, row: Found, number: int) -> None:
        cell, rows, key = new.cell, self._rows, _key(new.cell)
        for child in self._children:
            self._clear(connection, child.rows, key)
        row_key, name = str(cell.row_key), cell.column_name
        connection.rows(_SAY_TOMBSTONE, (f"{cell.ref_key} {name}",))
        connection.rows(f"DELETE FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))}")
        reach("put.deleted")
        of_child = number if self._kind is RefKeyKind.CHILD else 0
        if not connection.rows(_IS_CAPTURED, (row_key, name, of_child, cell.ref_key)):
            # The layout ignores deletions; but this one was put.
            connection.rows(_RAISE_TOMB, (row_key, name, of_child, cell.ref_key))
            connection.rows(_QUEUE_TOMBSTONE, (row_key, name, cell.ref_key, row.ref_key))

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

    def _store(self, connection: LegacyConnection, new: NewCell) -> None:
        """As a cell of our own: history, or a child before its parent."""
        cell, data = new
        key = (str(cell.row_key), cell.column_name, cell.ref_key)
        connection.rows(_STORE, (*key, data, *key, data.decode()))
        reach("put.stored")

    def _committed(self, connection: LegacyConnection) -> Outcome:
        reach("put.before_commit")
        connection.rows("COMMIT")
        reach("put.committed")
        return Outcome(is_created=True)

    def _compare(self, connection: LegacyConnection, new: NewCell, row: Found) -> None:
        """Refuse when the row that came of a put holds another body: whoever raises rolls back."""
        stored = Stored(new.cell.row_key, new.cell.column_name, row)
        data = self._bodies.data(connection, stored)
        if data != new.data:
            path = difference(new.cell.body, from_canonical(data))
            hint = "Write it as Postgres gives it back, or map it to another type."
            raise Unrepresentable(path, "Postgres gives back another value", hint=hint)

    def _cell(self, connection: LegacyConnection, cell: Cell, found: Found) -> Cell:
        return self._bodies.cells(connection, [Stored(cell.row_key, cell.column_name, found)])[0]

    def _parent(self, key: str) -> str:
        parent = self._layout.row_key
        return f"SELECT 1 FROM {parent.table.sql} AS p WHERE p.{quoted(parent.uuid)} = {key}"

    def _is_key(self, physical: str) -> bool:
        """Whether a physical column is part of the row's key, and so set by it."""
        source = self._column.ref_key
        return physical in (self._column.uuid, self._column.parent, source.column, source.version)


def _begin(connection: LegacyConnection) -> str:
    """Triggers of the company's find their tables as in its own sessions."""
    return _BEGIN.format(path=connection.search_path or "''")


def _key(cell: Cell) -> str:
    return f"'{cell.row_key}'::uuid"


def _number(number: int) -> str:
    """Without quotes the lowest one would be no bigint."""
    return f"'{number}'::bigint"


def _escaped(sql: str) -> str:
    """SQL that stands in a statement with parameters."""
    return sql.replace("%", "%%")
