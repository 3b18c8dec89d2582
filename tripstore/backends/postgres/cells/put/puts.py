"""`LegacyPuts`: one cell, a batch, an append. Checks, sends each cell to where its column lives, says what became
of it.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from schemaless_core import metrics
from schemaless_core.cell.answers import ANY, PutResult, PutStatus
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import (
    REF_KEY_MAX,
    Cell,
    CellKey,
    check_column_name,
    check_ref_key,
    checked_bytes,
    no_free_ref_key,
)
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.cell.requests import listed_cells
from schemaless_core.cell.sharding import shard_of
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Invalid, SchemalessError, StoreClosed, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.habits import Habits
from tripstore.backends.postgres.cells.datastore_shape import DatastoreShape
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put import unmapped as free
from tripstore.backends.postgres.cells.put.joint_puts import JointPuts
from tripstore.backends.postgres.cells.put.row_puts import RowPuts
from tripstore.backends.postgres.cells.put.unmapped import UnmappedCell
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.read.reads import LegacyReads
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, RefKeyKind
from tripstore.backends.postgres.numbers.numbers import Numbers
from tripstore.backends.postgres.numbers.sequences import NumberSequence
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import ConnectionLost
from tripstore.backends.postgres.wire.wire import LegacyConnection

logger = logging.getLogger(__name__)

#: The longest pause between two attempts of an append.
APPEND_PAUSE_SECONDS = 0.01


class LegacyPuts:
    """The writing half of the legacy store."""

    def __init__(
        self,
        database: LegacyDatabase,
        layout: Layout,
        places: ColumnPlaces,
        codecs: Codecs,
        reads: LegacyReads,
        shape: DatastoreShape,
        habits: Habits,
        standing: LegacyStanding,
        numbers: Numbers,
    ) -> None:
        self._standing = standing
        self._numbers = numbers
        self._database = database
        self._layout = layout
        self._bodies = Bodies(codecs)
        self._reads = reads
        self._shape = shape
        self._habits = habits
        children = {
            column.name: RowPuts(layout, places.columns[column.name], {}, codecs, standing)
            for column in layout.children
        }
        parent = RowPuts(layout, places.columns[layout.parent.name], children, codecs, standing)
        self._mapped = {**children, layout.parent.name: parent}
        self._joint = JointPuts(self._mapped, standing)

    def put(self, cell: Cell, expect_latest: Any) -> PutResult:
        new = UnmappedCell(cell, checked_bytes(cell, self._shape.max_body_bytes))
        if expect_latest is not ANY and expect_latest is not None:
            check_ref_key(expect_latest)
        return self._put(new, expect_latest, self._deadline(0))

    def append(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        """At the next free ref key: the loser of a race tries the next one. In a child's table it is a new row."""
        data = checked_bytes(Cell(row_key, column_name, 1, body), self._shape.max_body_bytes)
        deadline = self._deadline(0)
        sequence = self._numbers.find(column_name, deadline)
        if sequence is not None:
            return self._append_drawn(sequence, row_key, column_name, body, data, deadline)
        latest = self._database.run(
            lambda connection: self._reads.find_latest(connection, row_key, column_name), deadline
        )
        while True:
            cell = Cell(row_key, column_name, self._next(column_name, latest), body)
            try:
                return self._put(UnmappedCell(cell, data), None if latest is None else latest.ref_key, deadline)
            except CellConflict as lost:
                if deadline.is_over:
                    raise Unavailable(
                        f"Column {column_name} of {row_key} is appended to by too many at once.",
                        hint="Repeat the append, or give it a longer deadline with using(deadline=…).",
                    ) from lost
                latest = lost.stored
            # Losers of one race must not meet again in the next.
            time.sleep(random.uniform(0, APPEND_PAUSE_SECONDS))

    def _append_drawn(
        self,
        sequence: NumberSequence,
        row_key: UUID,
        column_name: str,
        body: Json,
        data: bytes,
        deadline: Deadline,
    ) -> PutResult:
        """With a number of the table's own sequence: no other writer is given it, so there is no race to lose."""
        column = self._layout.columns[column_name]
        while True:
            (number,) = self._numbers.draw(sequence, 1, deadline, is_durable=False)
            cell = Cell(row_key, column_name, column.compose(number, 0), body)
            try:
                return self._put(UnmappedCell(cell, data), ANY, deadline)
            except CellConflict:
                if deadline.is_over:
                    raise

    def put_many(self, cells: Sequence[Cell]) -> list[PutResult]:
        cells = listed_cells(cells)
        new = [UnmappedCell(cell, checked_bytes(cell, self._shape.max_body_bytes)) for cell in cells]
        deadline = self._deadline(len(cells))
        outcomes: list[PutResult | SchemalessError] = []
        for part in _parts(new, self._mapped):
            outcomes += self._put_part(part, deadline)
        return _delivered(outcomes)

    def put_jointly(self, cells: Sequence[Cell]) -> set[CellKey]:
        """Store what is simple by few commits; the keys of what was stored. The rest is to be put singly, in order."""
        new, left = list[UnmappedCell](), set[UUID]()
        for cell in cells:
            try:
                new.append(UnmappedCell(cell, checked_bytes(cell, self._shape.max_body_bytes)))
            except Invalid:
                left.add(cell.row_key)
        stored = set[CellKey]()
        try:
            self._numbers.pass_cells((each.cell for each in new), self._deadline(len(new)))
            self._put_jointly(new, stored, left)
        except ConnectionLost:
            raise
        except SchemalessError as error:
            # It took too long, or a lock did: what is left has a deadline for each cell.
            logger.info("cells are put one by one: %s", error.message, extra={"event": "legacy.joint_put_left"})
        metrics.cells_written("created", len(stored))
        return stored

    def _put_jointly(self, cells: Sequence[UnmappedCell], stored: set[CellKey], left: set[UUID]) -> None:
        """By one commit; else without what stood in the way, or, when that is not known, each half by itself.

        Of a row that is `left` nothing comes before what was left of it.
        """
        simple = list[UnmappedCell]()
        for new in cells:
            if new.cell.row_key in left or not self._joint.may_take(new):
                left.add(new.cell.row_key)
            else:
                simple.append(new)
        if len(simple) < 2:
            left.update(new.cell.row_key for new in simple)
            return
        deadline = self._deadline(len(simple))
        attempt = self._database.run(lambda connection: self._joint.put(connection, simple), deadline)
        if attempt.is_stored:
            stored.update(CellKey(*new.cell.key) for new in simple)
            return
        left |= attempt.odd
        middle = 0 if attempt.odd else len(simple) // 2
        for part in (simple[:middle], simple[middle:]):
            self._put_jointly(part, stored, left)

    def _put(self, new: UnmappedCell, expect_latest: Any, deadline: Deadline) -> PutResult:
        """Store a checked cell."""
        try:
            is_created = self._stored(new, expect_latest, deadline)
        except CellConflict:
            metrics.cells_written("conflict")
            raise
        reach("put.acknowledged")
        result = self._result(new.cell, is_created)
        metrics.cells_written(result.status.lower())
        return result

    def _stored(self, new: UnmappedCell, expect_latest: Any, deadline: Deadline) -> bool:
        name = new.cell.column_name
        if name == LEGACY_ID:
            return self._legacy_id(new)
        if name in self._mapped:
            puts = self._mapped[name]
            self._numbers.pass_cells((new.cell,), deadline)
            return self._database.run(lambda connection: puts.put(connection, new, expect_latest), deadline).is_created

        def put(connection: LegacyConnection) -> bool:
            put = free.put(connection, new, self._standing, expect_latest)
            outcome = self._free_outcome(connection, new, put, expect_latest)
            if isinstance(outcome, SchemalessError):
                raise outcome
            return outcome

        return self._database.run(put, deadline)

    def _put_part(self, part: Sequence[UnmappedCell], deadline: Deadline) -> list[PutResult | SchemalessError]:
        """Cells of free columns as one transaction, or one of another column."""
        try:
            if len(part) == 1:
                return [self._result(part[0].cell, self._stored(part[0], ANY, deadline))]
            return self._database.run(lambda connection: self._put_free(connection, part), deadline)
        except StoreClosed:
            raise
        except SchemalessError as error:
            return [error] * len(part)

    def _put_free(
        self, connection: LegacyConnection, part: Sequence[UnmappedCell]
    ) -> list[PutResult | SchemalessError]:
        outcomes: list[PutResult | SchemalessError] = []
        for new, put in zip(part, free.put_many(connection, part, self._standing), strict=True):
            outcome = self._free_outcome(connection, new, put, ANY)
            outcomes.append(outcome if isinstance(outcome, SchemalessError) else self._result(new.cell, outcome))
        return outcomes

    def _free_outcome(
        self, connection: LegacyConnection, new: UnmappedCell, put: free.Put, expect_latest: Any
    ) -> bool | SchemalessError:
        """Whether the cell was created; False when an equal one was there."""
        if put.is_created:
            return True
        cell = new.cell
        if put.found is None:
            return CellConflict(cell, None, expected=expect_latest)
        stored = StoredRow(cell.row_key, cell.column_name, put.found)
        if put.found.ref_key != cell.ref_key:
            return CellConflict(cell, self._bodies.cell(connection, stored), expected=expect_latest)
        if self._bodies.data(connection, stored) == new.data:
            return False
        return CellConflict(cell, self._bodies.cell(connection, stored))

    def _legacy_id(self, new: UnmappedCell) -> bool:
        """Postgres gives legacy ids itself; what it gave may be put as often as wanted."""
        if self._reads.cell(*CellKey(*new.cell.key)) == new.cell:
            return False
        hint = "Insert the row; its legacy id comes with it."
        raise Unrepresentable("", f"{LEGACY_ID} says what Postgres gave a row", hint=hint)

    def _next(self, column_name: str, latest: Cell | None) -> int:
        """The ref key after the latest; in a column of child rows that change, the first version of the next row."""
        check_column_name(column_name)
        mapped = self._layout.columns.get(column_name)
        if mapped is not None and mapped.ref_key.kind is RefKeyKind.CHILD:
            number = 1 if latest is None else mapped.split(latest.ref_key)[0] + 1
            return mapped.compose(number, 0)
        if latest is not None and latest.ref_key == REF_KEY_MAX:
            raise no_free_ref_key(column_name)
        return 1 if latest is None else latest.ref_key + 1

    def _result(self, cell: Cell, is_created: bool) -> PutResult:
        status = PutStatus.CREATED if is_created else PutStatus.EXISTS
        shard = shard_of(cell.row_key, self._shape.shards)
        return PutResult(status, True, shard, cell.ref_key, self._standing.epoch, None)

    def _deadline(self, cells: int) -> Deadline:
        if self._habits.deadline is not None:
            return Deadline(self._habits.deadline)
        deadlines = self._database.settings.deadlines
        return Deadline(deadlines.put_seconds + cells * deadlines.batch_cell_seconds)


def _parts(cells: Sequence[UnmappedCell], mapped: dict[str, RowPuts]) -> Iterator[list[UnmappedCell]]:
    """Cut a batch, in order: free columns by count, bytes and locks, each key once in a part; others singly."""
    part: list[UnmappedCell] = []
    keys, columns, size = set[CellKey](), set[tuple[UUID, str]](), 0
    for new in cells:
        cell = new.cell
        is_free = cell.column_name not in mapped and cell.column_name != LEGACY_ID
        column = (cell.row_key, cell.column_name)
        is_full = (
            len(part) == free.CELLS_PER_BATCH
            or size + len(new.data) > free.BYTES_PER_BATCH
            or (column not in columns and len(columns) == free.LOCKS_PER_BATCH)
        )
        if part and (is_full or not is_free or cell.key in keys):
            yield part
            part, keys, columns, size = [], set(), set(), 0
        if not is_free:
            yield [new]
            continue
        part.append(new)
        keys.add(cell.key)
        columns.add(column)
        size += len(new.data)
    if part:
        yield part


def _delivered(results: list[PutResult | SchemalessError]) -> list[PutResult]:
    """The results when all cells are stored, else `BatchFailed` with all of them."""
    stored = [result for result in results if isinstance(result, PutResult)]
    for status, count in Counter(result.status for result in stored).items():
        metrics.cells_written(status.lower(), count)
    if len(stored) < len(results):
        metrics.cells_written("failed", len(results) - len(stored))
        raise BatchFailed(results)
    return stored
