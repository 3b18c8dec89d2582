"""`MemoryStore`: the whole cell store in dictionaries. The oracle of the tests, and a real store for trying out.

Deliberately shares no code with `Datastore` beyond values and checks, so that one can be held against the other.
"""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

from schemaless_core.cell import page_bytes
from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexEntry,
    IndexPage,
    Location,
    Position,
    PutResult,
    PutStatus,
    Row,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import (
    DEFAULT_MAX_BODY_BYTES,
    REF_KEY_MAX,
    Cell,
    CellKey,
    ColumnKey,
    check_column_name,
    check_key,
    check_ref_key,
    check_row_key,
    checked_bytes,
    no_free_ref_key,
)
from schemaless_core.cell.children import NO_CHILDREN, Children, latest_of
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome, Problem, decode_cell
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.cell.requests import (
    check_limit,
    check_location,
    check_shard,
    listed_cells,
    listed_columns,
    listed_keys,
    listed_names,
)
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash, shard_of
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.query import (
    CheckedCondition,
    Query,
    build_query,
    check_cells_asked,
    check_consistency,
    unknown_index,
)
from schemaless_core.definitions.values import BadValue, parse
from schemaless_core.errors import CellPurged, InvalidRequest, PositionUnknown, SchemalessError
from schemaless_core.habits import Habits
from schemaless_core.store import JointStore

_EPOCH = 1


class MemoryStore(JointStore):
    """Cells in this process only; nothing outlives it.

    Its indexes lag as those of servers may: a fast query answers as of the query before it, so that code which counts
    on finding what it has just put fails here, and not in production. `lagging_indexes=False` has them answer at once.
    """

    def __init__(
        self,
        *,
        store: str = "trips",
        shards: int = 16,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        indexes: Sequence[IndexDefinition] = (),
        lagging_indexes: bool = True,
    ) -> None:
        self._store = store
        self._shards = shards
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._indexes = {definition.name: definition for definition in indexes}
        self._is_lagging = lagging_indexes
        #: What the entries of each index say: the rows as its last query saw them.
        self._entries: dict[str, list[_IndexedRow]] = {}
        self._lock = threading.RLock()
        self._rows: defaultdict[UUID, defaultdict[str, dict[int, Cell]]] = defaultdict(lambda: defaultdict(dict))
        self._logs: defaultdict[int, list[Cell]] = defaultdict(list)
        #: Per row and column, the ref key up to which it was purged; an empty column is the whole row.
        self._purged: dict[tuple[UUID, str], int] = {}
        #: Of each shard the added ids whose cells were purged.
        self._purged_ids: defaultdict[int, set[int]] = defaultdict(set)

    def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | Any | None = ANY,
    ) -> PutResult:
        cell = Cell(row_key, column_name, ref_key, body)
        checked_bytes(cell, self._max_body_bytes)
        check_expected(expect_latest)
        with self._lock:
            return self._put(cell, expect_latest)

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        cells = listed_cells(cells)
        for cell in cells:
            checked_bytes(cell, self._max_body_bytes)
        with self._lock:
            results = [self._try_put(cell) for cell in cells]
        stored = [result for result in results if isinstance(result, PutResult)]
        if len(stored) < len(results):
            raise BatchFailed(results)
        return stored

    def put_encoded(self, cells: Sequence[EncodedCell]) -> EncodedOutcome:
        """Store many cells whose bodies are canonical bytes, like `put_cells`, but raise for none of them."""
        statuses: list[PutStatus] = []
        problems: list[Problem] = []
        purged = 0
        for n, cell in enumerate(cells):
            try:
                decoded = decode_cell(cell)
                statuses.append(self.put_cell(*decoded.key, decoded.body).status)
            except CellPurged:
                purged += 1
            except SchemalessError as error:
                problems.append(Problem(n, error))
        created, existed = statuses.count(PutStatus.CREATED), statuses.count(PutStatus.EXISTS)
        return EncodedOutcome(created, existed, tuple(problems), purged)

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]:
        """Return the positions of cells that are not there byte for byte."""
        found = [self.get_cell(*decode_cell(cell).key) for cell in cells]
        wanted = [decode_cell(cell) for cell in cells]
        return [
            n
            for n, (cell, there) in enumerate(zip(wanted, found, strict=True))
            if there != cell and not self._is_purged(cell)
        ]

    def _is_purged(self, cell: Cell) -> bool:
        try:
            self._refuse_purged(cell)
        except CellPurged:
            return True
        return False

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        """Store cells of one row, all or none; None: a key is taken, or the row has a cell after this position."""
        cells = listed_cells(cells)
        for cell in cells:
            checked_bytes(cell, self._max_body_bytes)
        check_location(seen, self._store)
        if len({cell.row_key for cell in cells}) != 1 or len({cell.key for cell in cells}) < len(cells):
            raise InvalidRequest("Cells that are put together are of one row, each key once.", hint="Put others apart.")
        with self._lock:
            there = [cell for versions in self._rows[cells[0].row_key].values() for cell in versions.values()]
            for cell in cells:
                if cell.key not in {each.key for each in there}:
                    self._refuse_purged(cell)
            is_moved = any((cell.added_id or 0) > seen.added_id for cell in there) or seen.epoch != _EPOCH
            if is_moved or {cell.key for cell in there} & {cell.key for cell in cells}:
                return None
            return [self._put(cell, ANY) for cell in cells]

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        checked_bytes(Cell(row_key, column_name, 1, body), self._max_body_bytes)
        with self._lock:
            latest = self._latest(row_key, column_name)
            ref_key = 1 if latest is None else latest.ref_key + 1
            if ref_key > REF_KEY_MAX:
                raise no_free_ref_key(column_name)
            return self._put(Cell(row_key, column_name, ref_key, body), ANY)

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        check_key(row_key, column_name, ref_key)
        with self._lock:
            return _fresh(self._versions(row_key, column_name).get(ref_key))

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        check_row_key(row_key)
        check_column_name(column_name)
        with self._lock:
            return _fresh(self._latest(row_key, column_name))

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        return [self.get_cell(*key) for key in listed_keys(keys)]

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        return [self.get_cell_latest(*column) for column in listed_columns(columns)]

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        check_row_key(row_key)
        columns = listed_names(columns)
        with self._lock:
            return {name: copy.deepcopy(cell) for name, cell in self._latest_of_row(row_key, columns)}

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        check_key(row_key, column_name, before if before is not None else 0)
        check_limit(limit)
        with self._lock:
            versions = self._versions(row_key, column_name)
            newest_first = sorted(versions, reverse=True)
            chosen = [versions[ref] for ref in newest_first if before is None or ref < before][:limit]
            return copy.deepcopy(_fitting(chosen))

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
        definition = self._definition(index)
        query = build_query(definition, shard_value, where, fields, order_by, descending, limit, cursor)
        check_cells_asked(columns)
        check_consistency(consistency)
        with self._lock:
            rows = self._indexed(definition, is_fast=consistency == "fast")
            found = _in_order([row for row in rows if _is_asked_for(row, query)], query)
            page, entries, size = found[:limit], list[IndexEntry](), 0
            for row in page:
                cells = self._cells(row, columns)
                size += sum(len(canonical_bytes(cell.body)) for cell in (cells or {}).values())
                if entries and size >= page_bytes.bound():
                    break
                entries.append(IndexEntry(row.row_key, {name: row.fields[name] for name in query.fields}, cells))
        if len(entries) == len(found):
            return IndexPage(entries, None)
        page = page[: len(entries)]
        return IndexPage(entries, query.cursor_after(tuple(page[-1].fields.values()), page[-1].row_key))

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        return self.get_cells_for_shards({shard: location}, limit)[shard]

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        check_limit(limit)
        for shard, location in locations.items():
            check_shard(shard, self._shards)
            check_location(location, self._store)
        with self._lock:
            return {shard: self._page(shard, location, limit) for shard, location in locations.items()}

    def end_of_log(self, shard: int) -> Position:
        """Return where a shard's log ends now."""
        check_shard(shard, self._shards)
        with self._lock:
            return Position(self._store, _EPOCH, len(self._logs.get(shard, ())))

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        check_shard(shard, self._shards)
        check_limit(limit)
        columns = listed_names(columns)
        with self._lock:
            keys = sorted(key for key in self._row_keys(shard) if after is None or key > after)
            rows = [Row(key, self.get_row(key, columns)) for key in keys]
        rows = [row for row in rows if row.cells]
        page, size = rows[:1], _size(rows[:1])
        for row in rows[1:limit]:
            size += _size([row])
            if size >= page_bytes.bound():
                break
            page.append(row)
        return RowPage(page, page[-1].row_key if len(rows) > len(page) else None)

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        check_shard(shard, self._shards)
        columns = listed_names(columns)
        counts, sums = [0] * BUCKETS_PER_SHARD, [0] * BUCKETS_PER_SHARD
        with self._lock:
            for row_key in self._row_keys(shard):
                number = bucket_of(row_key.bytes)
                for name, cell in self._latest_of_children(row_key, columns, children):
                    body = canonical_bytes(cell.body)
                    counts[number] += 1
                    sums[number] += cell_hash(row_key.bytes, name.encode(), cell.ref_key, body)
        return [Bucket(shard, n, counts[n], sums[n] % 2**64) for n in range(BUCKETS_PER_SHARD)]

    def shard_of(self, row_key: UUID) -> int:
        check_row_key(row_key)
        return shard_of(row_key, self._shards)

    def purge_rows(self, row_keys: Iterable[UUID]) -> int:
        """Delete rows for good: nothing of them is stored again. Return how many cells they had."""
        with self._lock:
            count = 0
            for row_key in row_keys:
                check_row_key(row_key)
                self._purged[row_key, ""] = REF_KEY_MAX
                for versions in self._rows.pop(row_key, {}).values():
                    count += len(versions)
                    self._drop(versions.values())
            return count

    def purge_superseded(self, columns: Collection[str], before: datetime) -> int:
        """Delete versions with a later one in their column, that were stored before a moment; return how many."""
        with self._lock:
            return sum(
                self._purge_versions(row_key, name, versions, before)
                for row_key, of_row in self._rows.items()
                for name, versions in of_row.items()
                if name in columns
            )

    def _purge_versions(self, row_key: UUID, name: str, versions: dict[int, Cell], before: datetime) -> int:
        gone = [cell for ref_key, cell in versions.items() if ref_key < max(versions) and _created_at(cell) < before]
        for cell in gone:
            del versions[cell.ref_key]
            self._purged[row_key, name] = max(cell.ref_key, self._purged.get((row_key, name), cell.ref_key))
        self._drop(gone)
        return len(gone)

    def _drop(self, cells: Iterable[Cell]) -> None:
        """What stays in the log is passed by its readers, and has no body."""
        for cell in cells:
            shard, added_id = shard_of(cell.row_key, self._shards), cell.added_id
            assert added_id is not None, "the log holds stored cells only"
            self._logs[shard][added_id - 1] = Cell(*cell.key, None, added_id, cell.created_at)
            self._purged_ids[shard].add(added_id)

    def _refuse_purged(self, cell: Cell) -> None:
        for name in ("", cell.column_name):
            up_to = self._purged.get((cell.row_key, name))
            if up_to is not None and cell.ref_key <= up_to:
                raise CellPurged((cell.row_key.bytes, cell.column_name.encode(), cell.ref_key), up_to)

    def using(
        self,
        *,
        read: Literal["primary", "replica"] | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: Literal["single", "double"] | None = None,
    ) -> MemoryStore:
        Habits().with_changes(read, deadline, include_buffered, durability)  # refused alike
        return self  # one process, one copy: every habit is met already

    def close(self) -> None:
        """Nothing is open; code that closes its store does so here, too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, cell: Cell, expect_latest: Any) -> PutResult:
        stored = self._versions(cell.row_key, cell.column_name).get(cell.ref_key)
        shard = shard_of(cell.row_key, self._shards)
        if stored is not None:
            if stored != cell:
                raise CellConflict(cell, copy.deepcopy(stored))
            return PutResult(PutStatus.EXISTS, True, shard, cell.ref_key, _EPOCH, stored.added_id)
        self._refuse_purged(cell)
        if expect_latest is not ANY:
            latest = self._latest(cell.row_key, cell.column_name)
            if (latest.ref_key if latest else None) != expect_latest:
                raise CellConflict(cell, copy.deepcopy(latest), expected=expect_latest)
        log = self._logs[shard]
        created_at = max(self._clock(), log[-1].created_at) if log and log[-1].created_at else self._clock()
        body = copy.deepcopy(cell.body)
        new = Cell(cell.row_key, cell.column_name, cell.ref_key, body, len(log) + 1, created_at)
        log.append(new)
        self._rows[cell.row_key][cell.column_name][cell.ref_key] = new
        return PutResult(PutStatus.CREATED, True, shard, cell.ref_key, _EPOCH, new.added_id)

    def _try_put(self, cell: Cell) -> PutResult | SchemalessError:
        try:
            return self._put(cell, ANY)
        except (CellConflict, CellPurged) as conflict:
            return conflict

    def _page(self, shard: int, location: Location, limit: int) -> ShardPage:
        log = self._logs.get(shard, [])
        if isinstance(location, Position):
            start = location.added_id
            if location.epoch != _EPOCH or start > len(log):
                raise PositionUnknown(shard, location.epoch, start, _EPOCH, len(log))
        elif isinstance(location, datetime):
            start = bisect_left(log, location, key=_created_at)
        else:
            start = location
        purged = self._purged_ids.get(shard, set())
        kept = [cell for cell in log[start:] if cell.added_id not in purged]
        cells = copy.deepcopy(_fitting(kept[:limit]))
        end = cells[-1].added_id or 0 if cells else start
        while end + 1 in purged:
            end += 1
        return ShardPage(cells, end, Position(self._store, _EPOCH, end), len(log))

    def _versions(self, row_key: UUID, column_name: str) -> dict[int, Cell]:
        return self._rows[row_key].get(column_name, {}) if row_key in self._rows else {}

    def _latest(self, row_key: UUID, column_name: str) -> Cell | None:
        versions = self._versions(row_key, column_name)
        return versions[max(versions)] if versions else None

    def _latest_of_row(self, row_key: UUID, columns: Collection[str] | None) -> Iterable[tuple[str, Cell]]:
        for name, versions in self._rows[row_key].items() if row_key in self._rows else ():
            if versions and (columns is None or name in columns):
                yield name, versions[max(versions)]

    def _latest_of_children(
        self, row_key: UUID, columns: Collection[str] | None, children: Children
    ) -> Iterable[tuple[str, Cell]]:
        for name, versions in self._rows[row_key].items() if row_key in self._rows else ():
            if columns is None or name in columns:
                tombstones = [ref_key for ref_key, cell in versions.items() if cell.is_tombstone]
                for ref_key in latest_of(versions, tombstones, children.get(name)):
                    yield name, versions[ref_key]

    def _definition(self, index: object) -> IndexDefinition:
        if not isinstance(index, str) or index not in self._indexes:
            raise unknown_index(index, self._indexes)
        return self._indexes[index]

    def _indexed(self, definition: IndexDefinition, *, is_fast: bool) -> list[_IndexedRow]:
        """The rows as an index has them; afterwards it has caught up."""
        now = [_IndexedRow(row_key, self._fields(definition, row_key)) for row_key in self._rows]
        before, self._entries[definition.name] = self._entries.get(definition.name, []), now
        return before if is_fast and self._is_lagging else now

    def _fields(self, definition: IndexDefinition, row_key: UUID) -> dict[str, Scalar | None]:
        """What the latest cells of a row say of every field of an index, in the definition's order."""
        found: dict[str, Scalar | None] = {}
        for column in definition.columns:
            latest = self._latest(row_key, column.name)
            body = latest.body if latest is not None and isinstance(latest.body, dict) else {}
            for field in column.fields:
                value = parse(field.kind, body.get(field.name))
                found[field.name] = None if isinstance(value, BadValue) else value
        return found

    def _cells(self, row: _IndexedRow, columns: Sequence[str] | Literal["*"] | None) -> dict[str, Cell] | None:
        return None if columns is None else self.get_row(row.row_key, None if columns == "*" else columns)

    def _row_keys(self, shard: int) -> list[UUID]:
        return [key for key in self._rows if shard_of(key, self._shards) == shard]


def check_expected(expect_latest: Any) -> None:
    """`expect_latest` is ANY, None or a ref key."""
    if expect_latest is not ANY and expect_latest is not None:
        check_ref_key(expect_latest)


def _created_at(cell: Cell) -> datetime:
    assert cell.created_at is not None  # the log holds stored cells only
    return cell.created_at


def _fresh(cell: Cell | None) -> Cell | None:
    """A copy: a caller that changes a body it was given must not change the store."""
    return copy.deepcopy(cell)


class _IndexedRow(NamedTuple):
    """A row as an index sees it."""

    row_key: UUID
    fields: dict[str, Scalar | None]


def _is_asked_for(row: _IndexedRow, query: Query) -> bool:
    shard_value = row.fields[query.definition.shard_field.name]
    if shard_value is None or _comparable(shard_value) != _comparable(query.shard_value):
        return False
    return all(_is_met(condition, row.fields[condition.field.name]) for condition in query.conditions)


def _is_met(condition: CheckedCondition, value: Scalar | None) -> bool:
    if value is None:
        return False
    found, wanted = _comparable(value), [_comparable(each) for each in condition.values]
    match condition.operator:
        case "=":
            return bool(found == wanted[0])
        case "!=":
            return bool(found != wanted[0])
        case "<":
            return bool(found < wanted[0])
        case "<=":
            return bool(found <= wanted[0])
        case ">":
            return bool(found > wanted[0])
        case ">=":
            return bool(found >= wanted[0])
        case "in":
            return any(found == each for each in wanted)
        case "between":
            return bool(wanted[0] <= found <= wanted[1])
        case unknown:
            raise AssertionError(f"{unknown} was to be refused")


def _in_order(rows: list[_IndexedRow], query: Query) -> list[_IndexedRow]:
    """The rows behind the cursor, in the order asked for."""

    def value_of(row: _IndexedRow) -> Scalar | None:
        return None if query.order_by is None else row.fields[query.order_by.name]

    ordered = sorted(rows, key=lambda row: _standing(value_of(row), row.row_key), reverse=query.descending)
    if query.after is None:
        return ordered
    last = _standing(*query.after)
    if query.descending:
        return [row for row in ordered if _standing(value_of(row), row.row_key) < last]
    return [row for row in ordered if _standing(value_of(row), row.row_key) > last]


def _standing(value: Scalar | None, row_key: UUID) -> tuple[bool, Any, bytes]:
    """Missing values come first, equal ones in the order of their row keys."""
    return (value is not None, 0 if value is None else _comparable(value), row_key.bytes)


def _comparable(value: Scalar) -> Any:
    """Text as its bytes, UUIDs as theirs; everything else compares as it is."""
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, UUID) else value


def _fitting(cells: list[Cell]) -> list[Cell]:
    return cells[: page_bytes.fitting(len(canonical_bytes(cell.body)) for cell in cells)]


def _size(rows: Iterable[Row]) -> int:
    return sum(len(canonical_bytes(cell.body)) for row in rows for cell in row.cells.values())
