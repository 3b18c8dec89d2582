"""`PostgresBackend`: the cell store over the company's tables. Routes each call to the part that does it, measured."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar
from uuid import UUID

from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    PutResult,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import DEFAULT_MAX_BODY_BYTES, Cell, CellKey, ColumnKey, check_row_key
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children
from schemaless_core.cell.sharding import shard_of
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.habits import Habits
from schemaless_core.store import CellStore
from tripstore.backends.postgres.cells.datastore_shape import DatastoreShape
from tripstore.backends.postgres.cells.fence import NO_ROLE, LegacyStanding, MirrorRole, Owner
from tripstore.backends.postgres.cells.log import Log
from tripstore.backends.postgres.cells.mend.burials import Burials
from tripstore.backends.postgres.cells.mend.frozen import FrozenRows
from tripstore.backends.postgres.cells.mend.lifts import Lifts
from tripstore.backends.postgres.cells.mend.returned import ReturnedRows
from tripstore.backends.postgres.cells.put.puts import LegacyPuts
from tripstore.backends.postgres.cells.read.bodies import Bodies
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.read.reads import LegacyReads
from tripstore.backends.postgres.cells.read.scan import Scan
from tripstore.backends.postgres.cells.sums.sums import TableSums
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.postgres.ids.ids import Ids
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.numbers.numbers import Numbers
from tripstore.backends.postgres.queries.queries import Queries
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.measured import measured

P = ParamSpec("P")
T = TypeVar("T")
#: A look at every row of a mapped table, which no index serves.
FROZEN_SECONDS = 3600.0


class PostgresBackend(CellStore):
    """Cells in Postgres: mapped columns in the company's tables, all others in ours.

    Added ids are given when a reader of the log asks: puts and reads by key carry none.
    """

    def __init__(
        self,
        database: LegacyDatabase,
        layout: Layout,
        *,
        shards: int,
        indexes: Sequence[IndexDefinition] = (),
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        self.layout = layout
        self.database = database
        self._shape = DatastoreShape(layout.datastore, shards, max_body_bytes)
        self._codecs = Codecs(layout)
        self._places = ColumnPlaces(layout)
        self._queries = Queries(
            lambda sql, parameters, deadline: database.run(lambda found: found.rows(sql, parameters), deadline),
            layout,
            self._codecs.lookups,
            {definition.name: definition for definition in indexes},
            LegacyReads(database, self._places, self._codecs, Habits()).rows,
        )
        #: For a diff, which compares whole stores.
        self.sums = TableSums(database, layout, self._places, self._codecs.lookups, shards)
        self._returned = ReturnedRows(database, self._places)
        #: Of child rows, for appends.
        self.numbers = Numbers(database, layout)
        self._standing = NO_ROLE
        self._arrange(Habits())

    def as_owner(self, epoch: int) -> Self:
        """The same store as the authority at this epoch; when it is not, or not any more, calls raise `StaleEpoch`.

        They find out themselves: a put within its first packet, reads by key within their statement.
        """
        return self._as(Owner(self.layout.datastore, epoch))

    def as_mirror(self, epoch: int | None = None) -> Self:
        """The same store for the reverse mirror: puts pass a shut gate, but not its barrier, and are mirrored no more.

        `epoch`: since when Schemaless is open; when Postgres' gate says another one, calls raise `StaleEpoch`.
        A row that is not exactly what was put, when all triggers have run, is taken back: `Unrepresentable`.
        """
        return self._as(MirrorRole(self.layout.datastore, epoch))

    def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | None | Any = ANY,
    ) -> PutResult:
        cell = Cell(row_key, column_name, ref_key, body)
        return measured("put_cell", self._puts.put, cell, expect_latest)

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        return measured("put_cells", self._puts.put_many, cells)

    def put_jointly(self, cells: Sequence[Cell]) -> set[CellKey]:
        """Store cells that are most likely new by few commits; the keys of those that are stored.

        For the reverse mirror, which writes many rows and is alone with them. Those of a row come in order, and so does
        what is left of it: it is to be put cell by cell, which says what stands in its way.
        """
        return measured("put_cells", self._puts.put_jointly, cells)

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        return measured("append_cell", self._puts.append, row_key, column_name, body)

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        return measured("get_cell", self._reads.cell, row_key, column_name, ref_key)

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return measured("get_cell_latest", self._reads.latest, row_key, column_name)

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        return measured("get_cells", self._reads.cells, keys)

    def get_cells_known(self, keys: Sequence[CellKey]) -> list[Cell | HistoryTruncated | None]:
        """The same, with what `get_cells` would raise in the place of each version that is not known any more."""
        return measured("get_cells", self._reads.cells_known, keys)

    def get_cells_there(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        """The same for a caller that puts what is not there: None says no more than that; nothing is raised."""
        return measured("get_cells", self._reads.cells_there, keys)

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        return measured("get_cells_latest", self._reads.latest_cells, columns)

    def get_children_latest(self, keys: Sequence[ChildKey]) -> list[Cell | None]:
        """The latest cell or None per child, in order; of a fact the tombstone above it, if there is one."""
        return measured("get_cells_latest", self._reads.latest_children, keys)

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        return measured("get_row", self._reads.row, row_key, columns)

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        return self._read("get_history", self._reads.history, row_key, column_name, before, limit)

    def get_newest(self, columns: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:
        """The newest cells of each column that are known here, at most so many of each, newest first.

        Of the first columns, as many as a page of bodies has room for, and of one at least. Nothing is raised for those
        between them that are not known any more.
        """
        return measured("get_history", self._reads.newest, columns, limit)

    def get_ref_keys(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[int]:
        """Ref keys of the cells of a column that are known here, newest first, readable or not.

        Nothing is raised for those that are not known any more: for a caller that asks for each cell by itself.
        """
        return self._read("get_history", self._reads.ref_keys, row_key, column_name, before, limit)

    def query_index(
        self,
        index: str,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        fields: Sequence[str] | None = None,
        columns: Sequence[str] | Literal["*"] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> IndexPage:
        def ask() -> IndexPage:
            return self._queries.query_index(
                index,
                shard_value,
                where,
                fields=fields,
                columns=columns,
                order_by=order_by,
                descending=descending,
                limit=limit,
                cursor=cursor,
                consistency=consistency,
                deadline=self._reads.deadline(),
                scan_deadline=self._scan_deadline(),
            )

        return self._read("query_index", ask)

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        return self._read("get_cells_for_shard", self._log.pages, {shard: location}, limit)[shard]

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        return self._read("get_cells_for_shards", self._log.pages, locations, limit)

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        return self._read("scan_rows", self._scan.rows, shard, after, limit, columns)

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        return self._read("checksum", self._scan.checksum, shard, columns, children)

    def resolve_id(self, number: int) -> UUID | None:
        """The row key of a legacy id; None: no row ever had it, or it has no UUID yet."""
        return self._read("resolve_id", self._ids.resolve_id, number)

    def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The row keys of many legacy ids; what has none is left out."""
        return self._read("resolve_ids", self._ids.resolve_ids, numbers)

    def legacy_id(self, row_key: UUID) -> int | None:
        """The legacy id of a row key; None: no row has it."""
        return self._read("legacy_id", self._ids.legacy_id, row_key)

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The legacy ids of many row keys; what has none is left out."""
        return self._read("legacy_ids", self._ids.legacy_ids, row_keys)

    def lift(self, to: CellKey) -> bool:
        """Raise the version of a row to that of this key and change nothing else: it is carried anew. An owner's.

        False: there is no such row, or its version is not lower.
        """
        return measured("lift", self._lifts.lift, to, Deadline(self.database.settings.deadlines.put_seconds))

    def bury(self, column_name: str, keys: Sequence[CellKey]) -> set[CellKey]:
        """Write tombstones above these cells where no row, tombstone or cell is any more; where it did. An owner's.

        At most `LOCKS_PER_BATCH`, in one transaction. `LockTimeout`: writers held the table, and none was written.
        """
        deadline = Deadline(self.database.settings.deadlines.scan_seconds)
        return measured("bury", self._burials.bury, column_name, keys, deadline)

    def keep_legacy_ids(self, pairs: Mapping[UUID, bytes]) -> None:
        """Keep pairs of rows that are gone, as canonical bodies. An owner's."""
        measured("bury", self._burials.keep_pairs, pairs, Deadline(self.database.settings.deadlines.scan_seconds))

    def returned_rows(self) -> list[ChildKey]:
        """All rows that stand below their tombstones: they came back unseen by capture."""
        return measured("get_cells_latest", self._returned.all, self.database.settings.deadlines.scan_seconds)

    def returned_among(self, keys: Sequence[ChildKey]) -> set[ChildKey]:
        """Which of these rows stand below their tombstones."""
        return measured("get_cells_latest", self._returned.among, keys, self._scan_deadline())

    def frozen_rows(self) -> list[CellKey]:
        """All rows at the last version there is: nothing can change or delete them."""
        return measured("get_cells_latest", self._frozen.all, FROZEN_SECONDS)

    def replaced(self, key: CellKey, limit: int) -> list[int]:
        """Ref keys that captured changes of a column up to this one replaced, the highest first."""
        return measured("get_cells_latest", self._frozen.replaced, key, limit)

    def lower(self, key: CellKey, to: int, jumped: Sequence[int], *, is_first: bool) -> None:
        """Give a frozen row a lower ref key, and forget those that it jumped to. An owner's; `StaysFrozen`."""
        self._frozen.lower(key, to, jumped, is_first=is_first, seconds=self.database.settings.deadlines.scan_seconds)

    def lift_many(self, targets: Sequence[CellKey]) -> dict[CellKey, bytes | None]:
        """Those of the rows of one column that were lifted, in one transaction; `LockTimeout`: none was.

        With the canonical bytes that stand there now; None: none can be made of the row.
        """
        limits = self.database.settings.deadlines
        deadline = Deadline(limits.put_seconds + limits.batch_cell_seconds * len(targets))
        return measured("lift", self._lifts.lift_many, targets, deadline)

    def shard_of(self, row_key: UUID) -> int:
        check_row_key(row_key)
        return shard_of(row_key, self._shape.shards)

    def using(
        self,
        *,
        read: Literal["primary", "replica"] | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: Literal["single", "double"] | None = None,
    ) -> Self:
        """Return the same store with other habits. There is one copy and no buffer: reads are the primary's."""
        other = copy.copy(self)
        other._arrange(self._habits.with_changes(read, deadline, include_buffered, durability))
        return other

    def close(self) -> None:
        """Close all connections, and refuse calls from now on. Stores made by `using` share both."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _as(self, standing: LegacyStanding) -> Self:
        other = copy.copy(self)
        other._standing = standing
        other._arrange(self._habits)
        return other

    def _read(self, operation: str, part: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """An owner's answer counts only when the gate, looked at afterwards, says so."""
        if not self._standing.is_fenced:
            return measured(operation, part, *arguments, **options)
        asked = None if self._habits.deadline is None else self._reads.deadline()

        def look() -> None:
            self.database.run(self._standing.look, asked or self._reads.deadline())

        return measured(operation, lambda: self._standing.fenced(look, lambda: part(*arguments, **options)))

    def _scan_deadline(self) -> Deadline:
        """A deadline that was asked for binds whatever the call has to read."""
        seconds = self._habits.deadline
        return Deadline(self.database.settings.deadlines.scan_seconds if seconds is None else seconds)

    def _rows_of(self, sql: str, parameters: Any) -> list[Any]:
        return self.database.run(lambda connection: connection.rows(sql, parameters), self._reads.deadline())

    def _arrange(self, habits: Habits) -> None:
        self._habits = habits
        database, shape, places, codecs = self.database, self._shape, self._places, self._codecs
        self._reads = LegacyReads(database, places, codecs, habits, self._standing)
        self._puts = LegacyPuts(
            database, self.layout, places, codecs, self._reads, shape, habits, self._standing, self.numbers
        )
        self._lifts = Lifts(database, places, self._standing, Bodies(self._codecs))
        self._frozen = FrozenRows(database, places, self._standing)
        self._burials = Burials(database, self.layout, places, self._standing)
        self._log = Log(database, self._reads, shape, habits)
        self._ids = Ids(self._rows_of, self.layout, is_captured=True)
        self._scan = Scan(database, places, codecs, shape, habits)
