"""`Scan`: the latest cells of a shard in row-key order, and its checksums.

A page is two statements: where it ends, and everything in it. The second sees one moment, so no row is torn. Bodies are
rendered and hashed here: bytes that Postgres rendered would not be canonical, and no faster to come by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from schemaless_core.cell.answers import Bucket, Row, RowPage
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, check_row_key
from schemaless_core.cell.children import NO_CHILDREN, Children, latest_of
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.requests import check_limit, check_shard, listed_names
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash
from schemaless_core.deadline import Deadline
from schemaless_core.habits import Habits
from tripstore.backends.postgres.cells.datastore_shape import DatastoreShape
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, LegacyIds, quoted_uuid, text
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Rows whose cells are read together: how large they are is known afterwards.
ROWS_PER_PORTION = 100
#: Rows of one page of a checksum.
ROWS_PER_PAGE = 5_000

# How few rows are of a shard the planner does not know: it would sort a whole table for each page.
_BY_INDEX = "SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; "


def shard_sql(row_key: str, shards: int) -> str:
    """The shard of a row key in SQL: the same as `schemaless_core.cell.sharding`. An index on it makes walks cheap."""
    digest = f"pg_catalog.md5(pg_catalog.uuid_send({row_key}))"
    return f"(('x' || pg_catalog.substr({digest}, 1, 8))::pg_catalog.bit(32)::bigint % {shards})"


class Scan:
    """The part of the legacy store that enumerates."""

    def __init__(
        self, database: LegacyDatabase, places: ColumnPlaces, codecs: Codecs, shape: DatastoreShape, habits: Habits
    ) -> None:
        self._database = database
        self._places = places
        self._bodies = Bodies(codecs)
        self._shape = shape
        self._habits = habits

    def rows(self, shard: int, after: UUID | None, limit: int, columns: Collection[str] | None) -> RowPage:
        check_shard(shard, self._shape.shards)
        check_limit(limit)
        columns = listed_names(columns)
        if after is not None:
            check_row_key(after)
        sources = self._sources(columns, NO_CHILDREN)

        def look(connection: LegacyConnection) -> RowPage:
            keys = self._keys(connection, sources, shard, after, limit + 1)
            rows: dict[UUID, dict[str, Cell]] = defaultdict(dict)
            room, reached = bound(), 0
            while room > 0 and (portion := keys[reached : min(reached + ROWS_PER_PORTION, limit)]):
                start = keys[reached - 1] if reached else after
                latest = self._latest(connection, sources, shard, start, portion, NO_CHILDREN)
                for cell in self._bodies.cells(connection, latest):
                    rows[cell.row_key][cell.column_name] = cell
                    room -= len(canonical_bytes(cell.body))
                reached += len(portion)
            page = [Row(key, rows[key]) for key in sorted(rows)]
            return RowPage(page, keys[reached - 1] if len(keys) > reached else None)

        return self._database.run(look, self._deadline())

    def checksum(self, shard: int, columns: Collection[str] | None, children: Children) -> list[Bucket]:
        check_shard(shard, self._shape.shards)
        columns = listed_names(columns)
        sources = self._sources(columns, children)
        counts, sums = [0] * BUCKETS_PER_SHARD, [0] * BUCKETS_PER_SHARD
        deadline = self._deadline()
        after: UUID | None = None
        while True:
            hashes, after = self._database.run(
                lambda connection, after=after: self._hashes(connection, sources, shard, after, children),  # type: ignore[misc]  # mypy knows no default of a lambda
                deadline,
            )
            for number, value in hashes:
                counts[number] += 1
                sums[number] += value
            if after is None:
                return [Bucket(shard, n, counts[n], sums[n] % 2**64) for n in range(BUCKETS_PER_SHARD)]

    def _hashes(
        self,
        connection: LegacyConnection,
        sources: Sequence[_Source],
        shard: int,
        after: UUID | None,
        children: Children,
    ) -> tuple[list[tuple[int, int]], UUID | None]:
        """Bucket and hash of each cell of a page, and where the next page starts."""
        keys = self._keys(connection, sources, shard, after, ROWS_PER_PAGE)
        stored = self._latest(connection, sources, shard, after, keys, children)
        self._bodies.prefetch(connection, stored)
        hashes = []
        for each in stored:
            key, name = each.row_key.bytes, each.column_name.encode()
            data = self._bodies.data(connection, each)
            hashes.append((bucket_of(key), cell_hash(key, name, each.found.ref_key, data)))
        return hashes, keys[-1] if len(keys) == ROWS_PER_PAGE else None

    def _keys(
        self, connection: LegacyConnection, sources: Sequence[_Source], shard: int, after: UUID | None, limit: int
    ) -> list[UUID]:
        """The next row keys that have cells."""
        parts = " UNION ALL ".join(
            f"(SELECT DISTINCT {source.key} AS row_key FROM {source.table} "
            f"WHERE {self._within(source, shard, after, None)} ORDER BY 1 LIMIT {limit})"
            for source in sources
        )
        if not parts:
            return []
        sql = f'SELECT DISTINCT row_key::text COLLATE "C" FROM ({parts}) AS keys ORDER BY 1 LIMIT {limit}'
        return [UUID(key) for (key,) in connection.rows(_BY_INDEX + sql)]

    def _latest(
        self,
        connection: LegacyConnection,
        sources: Sequence[_Source],
        shard: int,
        after: UUID | None,
        keys: Sequence[UUID],
        children: Children,
    ) -> list[StoredRow]:
        """The latest cells of all rows up to the last of these keys."""
        if not keys:
            return []
        sql = " UNION ALL ".join(
            f"(SELECT {source.distinct}{source.name}::text, {source.key}::text, {source.found} FROM {source.table} "
            f"WHERE {self._within(source, shard, after, keys[-1])}{source.newest_first})"
            for source in sources
        )
        found: defaultdict[tuple[str, str], dict[int, Found]] = defaultdict(dict)
        for name, key, *fields in connection.rows(sql):
            each = Found(*fields)
            found[key, name].setdefault(each.ref_key, each)
        row_keys = {key: UUID(key) for key, _name in found}
        return [
            StoredRow(row_keys[key], name, versions[ref_key])
            for (key, name), versions in found.items()
            for ref_key in _latest_of(versions, children.get(name))
        ]

    def _within(self, source: _Source, shard: int, after: UUID | None, last: UUID | None) -> str:
        conditions = [source.where, f"{shard_sql(source.key, self._shape.shards)} = {shard}"]
        if after is not None:
            conditions.append(f"{source.key} > {quoted_uuid(after)}")
        if last is not None:
            conditions.append(f"{source.key} <= {quoted_uuid(last)}")
        return " AND ".join(conditions)

    def _sources(self, columns: Collection[str] | None, children: Children) -> list[_Source]:
        return list(_sources(self._places, columns, children))

    def _deadline(self) -> Deadline:
        seconds = self._habits.deadline
        return Deadline(self._database.settings.deadlines.scan_seconds if seconds is None else seconds)


class _Source:
    """One place with latest cells of one or more columns."""

    def __init__(self, table: str, key: str, name: str, found: str, where: str, newest: str | None = None) -> None:
        self.table = table
        self.key = key
        self.name = name
        self.found = found
        self.where = where
        #: Where there are several of one column: what is told apart, and what the latest has most of.
        self.distinct = self.newest_first = ""
        if newest is not None:
            columns = key if name.startswith("'") else f"{key}, {name}"
            self.distinct = f"DISTINCT ON ({columns}) "
            self.newest_first = f" ORDER BY {columns}, {newest} DESC"


def _latest_of(versions: Mapping[int, Found], bits: int | None) -> Iterable[int]:
    return latest_of(versions, [ref_key for ref_key, found in versions.items() if _is_tombstone(found)], bits)


def _is_tombstone(found: Found) -> bool:
    return found.row is None and (found.body is None or bytes(found.body) == TOMBSTONE)


def _sources(places: ColumnPlaces, columns: Collection[str] | None, children: Children) -> Iterator[_Source]:
    nothing = "NULL::int, NULL::text"
    for name, rows in places.mapped.items():
        if columns is not None and name not in columns:
            continue
        yield _of_table(rows, is_child=name in children)
        if isinstance(rows, ColumnRows):
            found = f"t.ref_key, {nothing}, NULL::bytea, NULL::timestamptz"
            where = f"t.column_name = {rows.name}"
            newest = None if name in children else "t.ref_key"
            yield _Source("tripstore.tomb AS t", "t.row_key", rows.name, found, where, newest)
    where = "true" if columns is None else f"c.column_name = ANY (ARRAY[{', '.join(map(text, columns))}]::text[])"
    found = f"c.ref_key, {nothing}, c.body, c.created_at"
    newest = None if children else "c.ref_key"
    yield _Source("tripstore.cell AS c", "c.row_key", "c.column_name", found, where, newest)


def _of_table(rows: ColumnRows | LegacyIds, *, is_child: bool) -> _Source:
    newest = f"r.{rows.number}" if isinstance(rows, ColumnRows) and rows.number and not is_child else None
    return _Source(f"{rows.table} AS r", f"r.{rows.uuid}", rows.name, rows.current, "true", newest)
