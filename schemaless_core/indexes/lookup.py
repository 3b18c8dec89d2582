"""`IndexQueries`: answers `query_index`. Fast: entries as they stand. Verified: each recomputed from its row's cells.

A verified answer is that of the cells, even if no entry was written for long: an entry may be missing or stale only for
a row whose cells lie above the index group's offsets, so those rows are looked at too. The offsets are read before the
entries: what is below them then has its entries already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

from schemaless_core.calls.lookups import Lookups
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.cell import page_bytes
from schemaless_core.cell.answers import IndexEntry, IndexPage, Location, Position, Scalar
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.requests import listed_values
from schemaless_core.cell.standing import Standing
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.query import Query, build_query, check_cells_asked, check_consistency, unknown_index
from schemaless_core.definitions.values import index_shard_of, sort_key
from schemaless_core.engine.base import EntryQuery, EntrySighting, Node, StoredEntry
from schemaless_core.engine.groups import OffsetSeen
from schemaless_core.errors import IndexMissing, SchemalessError, SchemaMissing, Unavailable
from schemaless_core.habits import Habits, ReadFrom
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.rows import Rows
from schemaless_core.servers.routing import Router

A = TypeVar("A")
V = TypeVar("V", bound=Scalar)

Columns = Sequence[str] | Literal["*"] | None

#: Cells above the group's offsets that a verified query looks at; more would take it too long.
BEHIND_MAX = 10_000
CELLS_PER_PAGE = 1_000
#: Entries that a verified query looks at together, even if few are asked for: some will be dropped.
ENTRIES_PER_PAGE = 100
#: Values whose first rows are asked for together: a packet has a statement for each.
VALUES_PER_LOOK = 2_000
#: Rows whose cells are read together: how large they are is known afterwards.
ROWS_PER_PORTION = 100


class _Row(NamedTuple):
    """A row that belongs to the answer, by its latest cells."""

    row_key: UUID
    values: tuple[Scalar | None, ...]
    sort_key: tuple[Any, ...]


class IndexQueries:
    """The index half of a datastore's reads."""

    def __init__(
        self,
        router: Router,
        config: DatastoreConfig,
        catalogue: Catalogue,
        habits: Habits,
        standing: Standing,
        lookups: Lookups,
    ) -> None:
        self._router = router
        self._config = config
        self._catalogue = catalogue
        self._habits = habits
        self._standing = standing
        self._lookups = lookups
        self._primary_lookups = Lookups(router, config, replace(habits, read="primary_only"), standing)
        self._rows = Rows(router, config.shards, standing)

    def query(
        self,
        index: str,
        shard_value: Scalar,
        where: Any,
        fields: Any,
        columns: Columns,
        order_by: str | None,
        descending: bool,
        limit: int,
        cursor: str | None,
        consistency: str,
    ) -> IndexPage:
        check_cells_asked(columns)
        check_consistency(consistency)
        answer = self._verified if consistency == "verified" else self._fast

        def ask(version: IndexVersion) -> IndexPage:
            definition = version.definition
            query = build_query(definition, shard_value, where, fields, order_by, descending, limit, cursor)
            return answer(version, query, columns)

        return self._on_current(index, ask)

    def first_rows(self, index: str, shard_values: Iterable[V], consistency: str) -> dict[V, UUID]:
        """The first row of each value by row key, as a query of one row finds it; each server is asked once."""
        check_consistency(consistency)
        values, is_verified = listed_values(shard_values), consistency == "verified"
        answer = self._firsts_verified if is_verified else self._firsts
        deadlines = self._config.deadlines
        deadline = self._deadline(deadlines.scan_seconds if is_verified else deadlines.read_seconds)

        def ask(version: IndexVersion) -> dict[V, UUID]:
            found: dict[V, UUID] = {}
            for first in range(0, len(values), VALUES_PER_LOOK):
                some = values[first : first + VALUES_PER_LOOK]
                queries = [build_query(version.definition, value, (), None, None, False, 1, None) for value in some]
                rows = answer(version, queries, deadline)
                keys = [_value_key(version, query.shard_value) for query in queries]
                found |= {value: rows[key] for value, key in zip(some, keys, strict=True) if key in rows}
            return found

        return self._on_current(index, ask)

    def _on_current(self, index: str, ask: Callable[[IndexVersion], A]) -> A:
        version = self._version(index)
        try:
            return ask(version)
        except IndexMissing:
            # Dropped, as this process did not know yet: there must be another one behind the alias.
            self._catalogue.refresh()
            current = self._version(index)
            if current == version:
                raise
        return ask(current)

    def _version(self, index: object) -> IndexVersion:
        """The version behind an index's alias."""
        if not isinstance(index, str):
            raise self._unknown(index)
        record = self._catalogue.indexes().get(index)
        if record is None or record.current is None:
            self._catalogue.refresh()  # it may be new
            record = self._catalogue.indexes().get(index)
        if record is None or not record.versions:
            raise self._unknown(index)
        if record.current is None:
            raise Unavailable(
                f"Index {index} is being built and answers no queries yet.",
                hint="Let `tripstore worker run` fill it, then run `tripstore index promote`.",
            )
        return record.current

    def _unknown(self, index: object) -> SchemalessError:
        if index in [definition.name for definition in self._config.indexes]:
            return SchemaMissing(f"Index {index} is not created yet.", hint="Run `tripstore schema apply`.")
        return unknown_index(index, self._catalogue.indexes())

    # Fast.

    def _fast(self, version: IndexVersion, query: Query, columns: Columns) -> IndexPage:
        deadline = self._deadline(self._config.deadlines.read_seconds)
        found = self._find(version, query, _place(query), query.limit + 1, self._habits.read, deadline)
        rows = [_Row(UUID(bytes=entry.row_key), entry.values, ()) for entry in found[: query.limit]]
        return self._page(query, rows, columns, has_more=len(found) > query.limit)

    def _find(
        self,
        version: IndexVersion,
        query: Query,
        after: tuple[Scalar | None, bytes] | None,
        limit: int,
        read_from: ReadFrom,
        deadline: Deadline,
    ) -> list[StoredEntry]:
        definition, order = version.definition, query.order_by
        wanted = EntryQuery(
            query.shard_value,
            limit,
            query.conditions,
            None if order is None else definition.position_of(order.name),
            query.descending,
            after,
        )
        shard = index_shard_of(definition.shard_field.kind, query.shard_value, self._config.shards)

        def find(node: Node) -> EntrySighting:
            return EntrySighting(*node.find_entries(version.table, shard, wanted, deadline))

        return self._router.read(shard, find, self._standing, read_from, deadline).entries

    def _firsts(self, version: IndexVersion, queries: Sequence[Query], deadline: Deadline) -> dict[Any, UUID]:
        found = self._find_firsts(version, queries, self._habits.read, deadline)
        return {value: UUID(bytes=entry.row_key) for value, entry in found.items()}

    def _find_firsts(
        self, version: IndexVersion, queries: Sequence[Query], read_from: ReadFrom, deadline: Deadline
    ) -> dict[Any, StoredEntry]:
        """By what is compared of their values."""
        kind, by_shard = version.definition.shard_field.kind, defaultdict[int, list[Scalar]](list)
        for value in {query.shard_value for query in queries}:
            by_shard[index_shard_of(kind, value, self._config.shards)].append(value)

        def find(node: Node, part: Mapping[int, Sequence[Scalar]]) -> dict[int, EntrySighting]:
            return node.find_first_entries(version.table, part, deadline)

        found = self._router.read_many(by_shard, find, self._standing, read_from, deadline)
        entries = (entry for sighting in found.values() for entry in sighting.entries)
        return {_value_key(version, entry.values[0]): entry for entry in entries}

    # Verified.

    def _firsts_verified(self, version: IndexVersion, queries: Sequence[Query], deadline: Deadline) -> dict[Any, UUID]:
        """The first entry may be of a row that has another value by now: then the others are looked at, too."""
        touched = self._touched(version, deadline)
        entries = self._find_firsts(version, queries, "primary_only", deadline)
        latest = self._values_of(version, touched | {entry.row_key for entry in entries.values()}, deadline)
        found: dict[Any, UUID] = {}
        for row_key, values in latest.items():
            if values[0] is not None:
                value = _value_key(version, values[0])
                found[value] = min(found.get(value, row_key), row_key)
        for query in queries:
            entry = entries.get(_value_key(version, query.shard_value))
            if entry is not None and not query.holds(latest[UUID(bytes=entry.row_key)]):
                page = self._verified(version, query, None, deadline)
                found.update({_value_key(version, query.shard_value): each.row_key for each in page.entries})
        return found

    def _verified(
        self, version: IndexVersion, query: Query, columns: Columns, deadline: Deadline | None = None
    ) -> IndexPage:
        if deadline is None:
            deadline = self._deadline(self._config.deadlines.scan_seconds)
        seen = self._touched(version, deadline)
        found = self._recomputed(version, query, seen, deadline)
        after, portion = _place(query), max(query.limit + 1, ENTRIES_PER_PAGE)
        while True:
            entries = self._find(version, query, after, portion, "primary_only", deadline)
            new = {entry.row_key for entry in entries} - seen
            seen |= new
            found += self._recomputed(version, query, new, deadline)
            if len(entries) < portion:
                ready = found
                break
            # A row may stand behind the last entry by now: it is in the answer once the scan has come so far.
            last = entries[-1]
            after = (_order_value(version, query, last), last.row_key)
            edge = query.sort_key(last.values, UUID(bytes=last.row_key))
            ready = [row for row in found if (row.sort_key >= edge if query.descending else row.sort_key <= edge)]
            if len(ready) > query.limit:
                break
        ready.sort(key=lambda row: row.sort_key, reverse=query.descending)
        return self._page(query, ready[: query.limit], columns, has_more=len(ready) > query.limit, is_verified=True)

    def _recomputed(self, version: IndexVersion, query: Query, row_keys: set[bytes], deadline: Deadline) -> list[_Row]:
        """Those of the rows that belong to the answer behind the cursor, as their latest cells have it."""
        rows = []
        for row_key, values in self._values_of(version, row_keys, deadline).items():
            if query.holds(values) and query.is_after_cursor(values, row_key):
                rows.append(_Row(row_key, values, query.sort_key(values, row_key)))
        return rows

    def _values_of(
        self, version: IndexVersion, row_keys: set[bytes], deadline: Deadline
    ) -> dict[UUID, tuple[Scalar | None, ...]]:
        """The fields of rows, as their latest cells have them."""
        read = self._rows.latest(row_keys, version.definition.column_names, deadline)
        read.raise_first()
        return {UUID(bytes=key): version.definition.fields_of(read.of(key)).values for key in row_keys}

    def _touched(self, version: IndexVersion, deadline: Deadline) -> set[bytes]:
        """The rows of an index that have cells which its group has not passed."""
        lagging = {shard: seen for shard, seen in self._offsets(version, deadline).items() if _is_behind(seen)}
        behind = sum(_behind(seen) for seen in lagging.values())
        if behind > BEHIND_MAX:
            raise Unavailable(
                f"Index {version.name} is {behind:,} cells behind, too many to look at in a query.",
                hint="Let `tripstore worker run` catch up, or ask with consistency='fast'.",
            )
        columns = frozenset(version.definition.column_names)
        log = ShardLog(self._router, self._config, self._at_primary(deadline), self._standing)
        places: dict[int, Location] = {shard: self._start(seen) for shard, seen in lagging.items()}
        touched: set[bytes] = set()
        reached: dict[int, int] = {}
        while places:
            for shard, page in log.pages(places, CELLS_PER_PAGE).items():
                touched |= {cell.row_key.bytes for cell in page.cells if cell.column_name in columns}
                if page.next_location < lagging[shard].head and reached.get(shard) != page.next_location:
                    places[shard] = reached[shard] = page.next_location
                else:
                    del places[shard]
        return touched

    def _offsets(self, version: IndexVersion, deadline: Deadline) -> dict[int, OffsetSeen]:
        """The group's offsets and the heads of all shards: one look per server."""

        def look(node: Node, part: Mapping[int, None]) -> dict[int, OffsetSeen]:
            return node.groups.find(version.group_name, list(part), deadline)

        shards = dict.fromkeys(range(self._config.shards))
        found = self._router.read_many(shards, look, self._standing, "primary_only", deadline)
        if any(seen.offset is None for seen in found.values()):
            raise IndexMissing("No server", version.table.name)  # dropped: its group went first
        return found

    def _start(self, seen: OffsetSeen) -> Location:
        if seen.offset is None:
            return 0
        if seen.offset.epoch == seen.state.epoch and seen.offset.added_id <= seen.head:
            return seen.offset.added_id
        return Position(self._config.datastore, seen.offset.epoch, seen.offset.added_id)

    # Both.

    def _page(
        self, query: Query, rows: Sequence[_Row], columns: Columns, *, has_more: bool, is_verified: bool = False
    ) -> IndexPage:
        # Beside verified fields no older cells of a replica's.
        lookups = self._primary_lookups if is_verified else self._lookups
        cells = self._cells(lookups, [row.row_key for row in rows], columns)
        if cells is not None and len(cells) < len(rows):
            rows, has_more = rows[: len(cells)], True
        entries = [
            IndexEntry(row.row_key, query.selected(row.values), None if cells is None else cells[row.row_key])
            for row in rows
        ]
        return IndexPage(entries, query.cursor_after(rows[-1].values, rows[-1].row_key) if has_more else None)

    def _cells(
        self, lookups: Lookups, row_keys: Sequence[UUID], columns: Columns
    ) -> dict[UUID, dict[str, Cell]] | None:
        """Of as many rows as a page has room for, one at least."""
        if columns is None:
            return None
        found: dict[UUID, dict[str, Cell]] = {}
        size = 0
        for first in range(0, len(row_keys), ROWS_PER_PORTION):
            portion = lookups.rows(row_keys[first : first + ROWS_PER_PORTION], None if columns == "*" else columns)
            for row_key, row in portion.items():
                size += sum(len(canonical_bytes(cell.body)) for cell in row.values())
                if found and size >= page_bytes.bound():
                    return found
                found[row_key] = row
        return found

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds if self._habits.deadline is None else self._habits.deadline)

    def _at_primary(self, deadline: Deadline) -> Habits:
        return Habits(read="primary_only", deadline=max(deadline.remaining_seconds(), 0.001))


def _place(query: Query) -> tuple[Scalar | None, bytes] | None:
    return None if query.after is None else (query.after.value, query.after.row_key.bytes)


def _order_value(version: IndexVersion, query: Query, entry: StoredEntry) -> Scalar | None:
    return None if query.order_by is None else entry.values[version.definition.position_of(query.order_by.name)]


def _value_key(version: IndexVersion, value: Scalar | None) -> Any:
    """Equal values have one."""
    assert value is not None
    return sort_key(version.definition.shard_field.kind, value)


def _is_behind(seen: OffsetSeen) -> bool:
    return seen.offset is None or seen.offset.epoch != seen.state.epoch or seen.offset.added_id < seen.head


def _behind(seen: OffsetSeen) -> int:
    return seen.head if seen.offset is None else max(0, seen.head - seen.offset.added_id)
