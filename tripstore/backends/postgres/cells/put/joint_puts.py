"""`JointPuts`: cells of many rows by one commit, or none of them.

Only what is simple gets through: a row that was not there, a row that moves to a higher version, a cell of a free
column whose key is free. Each must be exactly what was put when all triggers have run. Whatever else comes, all is
taken back and nothing is said: fewer are tried, and what is left is put by itself, which says what stands in its way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple
from uuid import UUID

from schemaless_core.errors import Conflict, Invalid
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import LegacyStanding
from tripstore.backends.postgres.cells.put import unmapped as free
from tripstore.backends.postgres.cells.put.locked import GIVE_WAY, begin_sql
from tripstore.backends.postgres.cells.put.row_puts import RowPuts
from tripstore.backends.postgres.cells.put.unmapped import BYTES_PER_BATCH, LOCKS_PER_BATCH, UnmappedCell
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.translation import Again, LockTimeout
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Each may take an advisory lock.
CELLS_MAX = LOCKS_PER_BATCH


class Write(NamedTuple):
    """A cell of a mapped column, and the statement that writes its row."""

    new: UnmappedCell
    puts: RowPuts
    sql: str


class Attempt(NamedTuple):
    """Whether everything was stored; else nothing was."""

    is_stored: bool
    #: The rows because of which; empty: that is not known.
    odd: Set[UUID] = frozenset()


STORED, FAILED = Attempt(True), Attempt(False)


class JointPuts:
    """Puts of all columns. Those of one row are given in order, and each key once."""

    def __init__(self, mapped: Mapping[str, RowPuts], standing: LegacyStanding) -> None:
        self._mapped = mapped
        self._standing = standing

    def may_take(self, new: UnmappedCell) -> bool:
        """Deletions take more than a statement, and legacy ids are not put at all."""
        name = new.cell.column_name
        return name != LEGACY_ID and not (name in self._mapped and new.data == TOMBSTONE)

    def put(self, connection: LegacyConnection, cells: Sequence[UnmappedCell]) -> Attempt:
        """One attempt."""
        if len(cells) > CELLS_MAX or sum(len(new.data) for new in cells) > BYTES_PER_BATCH:
            return FAILED
        try:
            writes = [self._write(connection, new) for new in cells if new.cell.column_name in self._mapped]
            others = [new for new in cells if new.cell.column_name not in self._mapped]
            types = [puts.writes.prepare(connection) for puts in {write.puts for write in writes}]
        except (Invalid, Conflict, Again):
            return FAILED
        connection.rows("; ".join([begin_sql(connection, self._standing), *types]))  # it may wait for the barrier
        try:
            attempt = self._put(connection, writes, others)
        except (Invalid, Conflict, Again, LockTimeout):
            attempt = FAILED
        if not connection.is_idle:
            connection.rows("ROLLBACK")
        return attempt

    def _put(self, connection: LegacyConnection, writes: Sequence[Write], others: Sequence[UnmappedCell]) -> Attempt:
        for part in _parts(writes):
            # A transaction that holds many rows and waits for another must be the one that gives way.
            connection.rows("; ".join([GIVE_WAY, *(write.sql for write in part)]))
            if odd := _not_as_put(connection, part):
                return Attempt(False, odd)
        if others:
            puts = free.put_many(connection, others, self._standing)
            if odd := {new.cell.row_key for new, put in zip(others, puts, strict=True) if not put.is_created}:
                return Attempt(False, odd)
        reach("put.before_commit")
        connection.rows("COMMIT")
        reach("put.committed")
        return STORED

    def _write(self, connection: LegacyConnection, new: UnmappedCell) -> Write:
        puts = self._mapped[new.cell.column_name]
        return Write(new, puts, puts.simple_sql(connection, new))


def _parts(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Cut where a row comes once more: it is looked at before it is written again."""
    part, places = list[Write](), set[tuple[UUID, str, int]]()
    for write in writes:
        cell = write.new.cell
        place = (cell.row_key, cell.column_name, write.puts.rows.column.split(cell.ref_key)[0])
        if place in places:
            yield part
            part, places = [], set()
        part.append(write)
        places.add(place)
    if part:
        yield part


def _not_as_put(connection: LegacyConnection, part: Sequence[Write]) -> set[UUID]:
    """The rows that are not, by one look for each column."""
    written: defaultdict[RowPuts, list[UnmappedCell]] = defaultdict(list)
    for write in part:
        written[write.puts].append(write.new)
    return {row_key for puts, cells in written.items() for row_key in puts.writes.not_as_put(connection, cells)}
