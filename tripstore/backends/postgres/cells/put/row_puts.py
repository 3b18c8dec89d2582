"""`RowPuts`: puts of cells of one mapped column, under the row's lock. The rules of versions (DESIGN, section 8).

A higher ref key moves the row in place. The row's own compares bytes. A lower one compares with history, or becomes
history, and leaves the row alone. Where no row is, its tomb says which ref keys are history; above it the row is
inserted, and below it never: a late mirror must not bring back what was deleted. The row that came of a write is
compared with what was asked for, and taken back when it is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import Conflict, Invalid
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import QUEUED, LegacyStanding
from tripstore.backends.postgres.cells.put.locked import (
    GIVE_WAY,
    GIVE_WAY_PAUSE_SECONDS,
    LockedSight,
    Lookout,
    begin_sql,
)
from tripstore.backends.postgres.cells.put.refused_fields import FieldNames
from tripstore.backends.postgres.cells.put.row_writes import CameBefore, RowWrites, find_came_before
from tripstore.backends.postgres.cells.put.tombstones import Tombstones
from tripstore.backends.postgres.cells.put.unmapped import UnmappedCell, lock_sql, store
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, quoted_int, quoted_uuid
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import CURRENT, Layout, RefKeyKind
from tripstore.backends.postgres.names import NO_FLOOR
from tripstore.backends.postgres.wire.translation import Again, LockTimeout, ValueRefused
from tripstore.backends.postgres.wire.wire import LegacyConnection

_TAKE_OUT = "DELETE FROM tripstore.cell WHERE row_key = %s::pg_catalog.uuid AND column_name = %s AND ref_key = %s"
# Capture queues the row anew, under the same key.
_TAKE_OUT_CHANGE = """\
DELETE FROM tripstore.queue WHERE row_key = %s::pg_catalog.uuid AND column_name = %s AND ref_key = %s"""

_MEET = """\
INSERT INTO tripstore.kept AS k (row_key, column_name, n, ref_key) VALUES ({}, {}, {}, {NO_FLOOR})
ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = k.ref_key""".replace("{NO_FLOOR}", str(NO_FLOOR))
# The queue's key is ours for a moment: a transaction that held it has ended then.
_WAIT = """\
INSERT INTO tripstore.queue (row_key, column_name, ref_key) VALUES ({0}, {1}, {2});
DELETE FROM tripstore.queue WHERE row_key = {0} AND column_name = {1} AND ref_key = {2}"""


class RowPutOutcome(NamedTuple):
    """What became of a put."""

    is_created: bool


class RowPuts:
    """Puts of one mapped column."""

    def __init__(
        self,
        layout: Layout,
        rows: ColumnRows,
        children: Mapping[str, RowPuts],
        codecs: Codecs,
        standing: LegacyStanding,
    ) -> None:
        self.rows = rows
        self._standing = standing
        self._column = rows.column
        self._kind = rows.column.ref_key.kind
        #: Of the parent column: the children, which go with it and may have come before it.
        self._children = children
        self._child_columns = [child._column for child in children.values()]
        self._codecs = codecs
        self._bodies = Bodies(codecs)
        self._fields = FieldNames(rows.column)
        self._lookout = Lookout(layout, rows, standing)
        self.writes = RowWrites(layout, rows, self._bodies, is_exact=standing.is_exact)
        self._tombstones = Tombstones(rows, [child.rows for child in children.values()], standing)

    def put(self, connection: LegacyConnection, new: UnmappedCell, expect_latest: Any) -> RowPutOutcome:
        """One attempt; `Again` when another writer was faster."""
        self._check(new.cell)
        try:
            texts = self._texts(connection, new)
        except Unrepresentable:
            if (outcome := self._beside_table(connection, new)) is not None:
                return outcome
            raise
        try:
            if texts is not None and self._advanced(connection, new, texts, expect_latest):
                return self._committed(connection)
            return self._settled(connection, new, texts, expect_latest)
        except LockTimeout as timeout:
            if texts is None or (self._column.is_child and expect_latest is not ANY):
                raise Again(timeout.message, pause_seconds=GIVE_WAY_PAUSE_SECONDS) from timeout  # it gave way
            raise
        except ValueRefused as refused:
            if self._column.is_child and refused.is_dangling and not self._has_parent_now(connection, new.cell):
                raise Again(refused.reason) from refused
            if refused.is_dangling and self._codecs.forget_keys(self._column.name, new.cell.body):
                raise Again(refused.reason) from refused
            # Postgres reads values before it looks for the row that they would move.
            connection.rows("ROLLBACK")
            if (outcome := self._beside_table(connection, new)) is not None:
                return outcome
            raise self._fields.named(connection, refused, texts or {}) from refused

    def simple_sql(self, connection: LegacyConnection, new: UnmappedCell) -> str:
        """A statement that inserts the row, or moves it, if that is all there is to do. Not for a tombstone."""
        self._check(new.cell)
        texts = self._texts(connection, new) or {}
        if self._column.is_first(new.cell.ref_key):
            insert = self.writes.insert_first_sql(connection, new.cell, texts)
            return f"{lock_sql(new.cell.row_key)}; {insert}"
        return self.writes.update_sql(connection, new.cell, texts, None)

    def _check(self, cell: Cell) -> None:
        """Refuse what no row can be."""
        if self._kind is RefKeyKind.CHILD:
            self._column.compose(*self._column.split(cell.ref_key))

    def _adopt_children(self, connection: LegacyConnection, parent: Cell, found: Sequence[CameBefore]) -> None:
        """Move cells that came before their parent into the tables; what a row cannot hold stays a cell."""
        newest: dict[tuple[str, int], CameBefore] = {}
        for came in sorted(found):
            newest[came.column_name, self._children[came.column_name]._column.split(came.ref_key)[0]] = came
        for came in newest.values():
            if came.data != TOMBSTONE:
                cell = Cell(parent.row_key, came.column_name, came.ref_key, from_canonical(came.data))
                self._children[came.column_name]._adopt(connection, UnmappedCell(cell, came.data))

    def _adopt(self, connection: LegacyConnection, new: UnmappedCell) -> None:
        connection.rows("SAVEPOINT adopted")
        key = (str(new.cell.row_key), new.cell.column_name, new.cell.ref_key)
        try:
            connection.rows(_TAKE_OUT, key)
            if self._standing.changes is QUEUED:
                connection.rows(_TAKE_OUT_CHANGE, key)
            self.writes.insert(connection, new, self._texts(connection, new) or {})
        except (Invalid, Conflict, Again):
            connection.rows("ROLLBACK TO adopted")

    def _texts(self, connection: LegacyConnection, new: UnmappedCell) -> dict[str, str | None] | None:
        """What the captured columns would hold; None: a tombstone."""
        if new.data == TOMBSTONE:
            return None
        return self._codecs.of(connection, CURRENT, self._column.name).row(new.cell.body)

    def _advanced(
        self, connection: LegacyConnection, new: UnmappedCell, texts: dict[str, str | None], expect_latest: Any
    ) -> bool:
        """Insert the row, or move it, in the packet that begins the transaction; False: it cannot be that simple."""
        is_conditional = expect_latest is not ANY
        if not is_conditional and self._column.is_first(new.cell.ref_key):  # most likely there is none
            begin = f"{begin_sql(connection, self._standing)}; {lock_sql(new.cell.row_key)}"
            waiting = self.writes.insert_first(connection, new, texts, begin, self._child_columns)
            if waiting is None:
                return False
            self._adopt_children(connection, new.cell, waiting)
            return True
        if self._kind is RefKeyKind.FACT or expect_latest is None or (is_conditional and self._column.is_child):
            return False
        expected = expect_latest if is_conditional else None
        return self.writes.update(connection, new, texts, expected, f"{begin_sql(connection, self._standing)}; ")

    def _settled(
        self, connection: LegacyConnection, new: UnmappedCell, texts: dict[str, str | None] | None, expect_latest: Any
    ) -> RowPutOutcome:
        """Lock, look, and do what the rules of versions say."""
        cell = new.cell
        seen = self._lookout.look(connection, cell, expect_latest)
        held = seen.row if seen.row is not None and seen.row.ref_key == cell.ref_key else seen.at
        if held is not None:
            return self._equal(connection, new, held)
        if expect_latest is not ANY and (seen.latest.ref_key if seen.latest else None) != expect_latest:
            stored = None if seen.latest is None else self._cell(connection, cell, seen.latest)
            raise CellConflict(cell, stored, expected=expect_latest)
        if seen.top is not None and cell.ref_key <= seen.top:  # equal: a deletion that was ignored left no tombstone
            store(connection, new, self._standing)
        elif texts is None:
            self._tombstones.put(connection, new, seen)
        elif seen.row is not None:
            if not self.writes.update(connection, new, texts, None):
                raise Again("the row moved")
        elif self._column.is_child and not seen.has_parent:
            self._store_before_parent(connection, new, seen)
        else:
            self.writes.insert(connection, new, texts)
            if self._children:
                self._adopt_children(connection, cell, find_came_before(connection, cell, self._child_columns))
        return self._committed(connection)

    def _beside_table(self, connection: LegacyConnection, new: UnmappedCell) -> RowPutOutcome | None:
        """What became of a cell that no row can hold, on a connection that is in no transaction; None: it is refused.

        It may have been put when the tables could hold it, or beside them.
        """
        held = connection.rows(self.rows.at(quoted_uuid(new.cell.row_key), quoted_int(new.cell.ref_key)))
        self._standing.look(connection)  # this put never entered, or has left
        if held:
            return self._equal(connection, new, Found(*held[0]))
        if self._standing.keeps_replaced and self._stored_as_replaced(connection, new):
            return self._committed(connection)
        return None

    def _stored_as_replaced(self, connection: LegacyConnection, new: UnmappedCell) -> bool:
        """Keep what no row can hold beside the table, if it is history; whether it is."""
        seen = self._lookout.look(connection, new.cell, ANY)
        if seen.at is not None or seen.top is None or new.cell.ref_key >= seen.top:
            return False
        store(connection, new, self._standing)
        return True

    def _store_before_parent(self, connection: LegacyConnection, new: UnmappedCell, seen: LockedSight) -> None:
        """Keep a child's cell beside its table, where capture looks before it numbers a row of a service's.

        A service may have inserted parent and child and not committed yet: then the key that its change stands under
        is taken, and is waited for. One that comes later finds the cell; an old snapshot of its, the key in `kept`.
        """
        cell = new.cell
        waits = [GIVE_WAY]
        if self._kind is RefKeyKind.CHILD:
            number, _version = self._column.split(cell.ref_key)
            place = (quoted_uuid(cell.row_key), self.rows.name)
            waits.append(_MEET.format(*place, number))
            next_key = self._column.compose(number, 0) if seen.top is None else seen.top + 1
            if next_key != cell.ref_key:
                waits.append(_WAIT.format(*place, next_key))
        reach("put.before_parent")
        try:
            connection.rows("; ".join(waits))
            store(connection, new, self._standing)
        except LockTimeout as timeout:
            raise Again(timeout.message, pause_seconds=GIVE_WAY_PAUSE_SECONDS) from timeout
        if self._lookout.has_parent(connection, cell.row_key):
            raise Again("the parent's row was inserted meanwhile")

    def _has_parent_now(self, connection: LegacyConnection, cell: Cell) -> bool:
        connection.rows("ROLLBACK")
        return self._lookout.has_parent(connection, cell.row_key)

    def _equal(self, connection: LegacyConnection, new: UnmappedCell, held: Found) -> RowPutOutcome:
        """The key is taken: by an equal cell, or in conflict."""
        stored = StoredRow(new.cell.row_key, new.cell.column_name, held)
        self._bodies.prefetch(connection, (stored,))
        if self._bodies.data(connection, stored) != new.data:
            raise CellConflict(new.cell, self._bodies.cell(connection, stored))
        if not connection.is_idle:
            connection.rows("ROLLBACK")
        return RowPutOutcome(is_created=False)

    def _committed(self, connection: LegacyConnection) -> RowPutOutcome:
        reach("put.before_commit")
        connection.rows("COMMIT")
        reach("put.committed")
        return RowPutOutcome(is_created=True)

    def _cell(self, connection: LegacyConnection, cell: Cell, found: Found) -> Cell:
        return self._bodies.cells(connection, [StoredRow(cell.row_key, cell.column_name, found)])[0]
