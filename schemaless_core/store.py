"""`CellStore`: the Schemaless API. The in-memory store, `Datastore`, the legacy backend and the facade all show it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    Position,
    PutResult,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import NO_CHILDREN, Children


class CellStore(Protocol):
    """Cells by key, as rows, and as a log per shard. Nothing is ever overwritten, no write silently dropped."""

    def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | None | Any = ANY,
    ) -> PutResult:
        """Store a cell. An equal cell answers EXISTS; another body under the key raises `CellConflict`.

        With `expect_latest` a cell that is not there yet is stored only when the column's highest ref key is
        the expected one (None: no cell yet). A put whose outcome is unknown may always be repeated.
        """
        ...

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        """Store many cells, in order per shard; not atomic.

        Writes all it can. If any conflicted or could not be stored it raises `BatchFailed`, with one result
        or error per cell in order. An invalid cell refuses the whole batch before any of it is written.
        """
        ...

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        """Store a body at the column's next free ref key (1 for the first).

        The body must be unique per event (carry an event id): only so can a repeat be told from a new event. After a
        time-out look at the history first: a repeat may store the body a second time.
        """
        ...

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        """Return the cell under this key, or None."""
        ...

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        """Return the cell with the highest ref key, tombstones included, or None."""
        ...

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        """Return one cell or None per key, in order."""
        ...

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        """Return the latest cell or None per column, in order."""
        ...

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        """Return the latest cell of each column of a row, tombstones included."""
        ...

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        """Return cells of a column, newest first, with ref keys below `before`.

        A page may be shorter than `limit`, as it ends at 32 MiB of bodies: go on below its last ref key until one is
        empty.
        """
        ...

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
        """Return the entries of an index under one shard value."""
        ...

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        """Return cells of a shard's log after a location; a time means "from the first cell created then"."""
        ...

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        """Return a page per shard, each of at most `limit` cells; fewer where their bodies are large."""
        ...

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        """Return the latest cells of the rows of a shard in row-key order; rows without any are left out.

        A page may have fewer rows than `limit`: the last one is that whose `after` is None.
        """
        ...

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        """Return count and sum of the latest cells per bucket, all buckets of the shard in order.

        Of columns that are named in `children` the latest cell of each child counts, of others one cell in each row.
        """
        ...

    def shard_of(self, row_key: UUID) -> int:
        """Return the shard that holds a row."""
        ...

    def using(
        self,
        *,
        read: Literal["primary", "replica"] = ...,
        deadline: float = ...,
        include_buffered: bool = ...,
        durability: Literal["single", "double"] = ...,
    ) -> CellStore:
        """Return the same store with other habits; what is not named stays as it was.

        `deadline`: seconds for each call. `include_buffered`: also read what waits in buffers. `durability`: "double"
        acknowledges a put when two servers have its cell.
        """
        ...

    def close(self) -> None:
        """Close what is open, as the end of a `with` block does. Stores made by `using` share it.

        Calls raise `StoreClosed` from then on. A `MemoryStore` has nothing to close, and goes on, for tests to look at.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store at the end of a `with` block."""
        ...


class JointStore(CellStore, Protocol):
    """A store that puts several cells of a row by one commit: `Datastore` and `MemoryStore`.

    The facade does not: while Postgres is the authority, there is no such commit.
    """

    def end_of_log(self, shard: int) -> Position:
        """Return where a shard's log ends now."""
        ...

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        """Store cells of one row by one commit, all or none.

        None: one of their keys is taken, or the row has a cell after this position of its shard's log: read it again.
        First `end_of_log`, then the row, then this.
        """
        ...
