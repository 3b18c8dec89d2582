"""`TableSums`: the latest cells of many shards as sums and hashes, each table read once, by COPY and in no order.

Rows stream through: what is kept of them are sums. Beside them stand tombs and cells of our own, few for mapped
columns, which are read first and take the place of the row that they are newer than. All is of one snapshot.

Whatever is hashed is rendered here, by the one encoder: Postgres would not do it faster, nor in the same bytes.
"""

from __future__ import annotations

from binascii import a2b_hex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5
from itertools import compress
from struct import Struct
from typing import NamedTuple, Protocol

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812

from schemaless_core.answers import Bucket
from schemaless_core.deadline import Deadline
from schemaless_core.sharding import BUCKETS_PER_SHARD
from tripstore.backends.postgres.cells.places import ColumnPlaces
from tripstore.backends.postgres.cells.rows import ColumnRows, LegacyIds, text
from tripstore.backends.postgres.cells.scan import shard_sql
from tripstore.backends.postgres.codec.codec import TOMBSTONE, ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.copy_text import NULL
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, quoted
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import translate
from tripstore.backends.postgres.wire.wire import LegacyConnection
from validation.buckets import CellDigest, Place, Sums

#: Rows that are hashed together, with one look at what they point to.
ROWS_PER_BATCH = 2_000
#: Of one batch, its looks at other tables included.
BATCH_SECONDS = 60.0
_NO_REF_KEY = "it has no ref key"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_two_uints = Struct(">II").unpack_from
_BUCKET_MASK = BUCKETS_PER_SHARD - 1


class _Own(NamedTuple):
    """A tomb or a cell of our own."""

    ref_key: int
    data: bytes


#: Texts by column: row key, ref key, legacy id, then what is captured.
_Columns = Sequence[Sequence[str]]
#: By column and row key.
_Owns = dict[tuple[bytes, bytes], _Own]


class _Sink(Protocol):
    """Takes hashes of cells, or why there is none."""

    def add(self, place: int, key: bytes, name: bytes, ref_key: bytes, hashed: bytes) -> None: ...

    def refuse(self, place: int, key: bytes, name: bytes, why: str) -> None: ...


class TableSums:
    """The `Digests` of a legacy store."""

    def __init__(
        self, database: LegacyDatabase, layout: Layout, places: ColumnPlaces, lookups: LookupCache, shards: int
    ) -> None:
        self._database = database
        self._places = places
        self._lookups = lookups
        self._codecs = {
            name: ColumnarCodec(column, ColumnCodec(column, lookups), lookups)
            for name, column in layout.columns.items()
        }
        self._shards = shards

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        """The sums of all buckets of these shards."""
        sink = _Summing(self._shards)
        self._walk(list(shards), columns, sink, None)
        return sink.sums(shards)

    def digests(self, places: Collection[Place], columns: Collection[str] | None) -> Iterable[CellDigest]:
        """The hashes of all cells of these buckets."""
        sink = _Listing()
        wanted = {place.shard * BUCKETS_PER_SHARD + place.number for place in places}
        self._walk(sorted({place.shard for place in places}), columns, sink, wanted)
        return sink.found

    def _walk(
        self, shards: Sequence[int], columns: Collection[str] | None, sink: _Sink, wanted: set[int] | None
    ) -> None:
        if not shards:
            return
        with self._snapshot() as connection:
            _Walk(self, connection, shards, columns, sink, wanted).run()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        try:
            with connected(self._database.url, "diff", statement_timeout="0") as connection:
                with connection.cursor() as cursor:
                    cursor.execute(_SNAPSHOT)
                yield connection
        except psycopg2.Error as error:
            raise translate(error, None) from error


class _Walk:
    """One pass over all sources."""

    def __init__(
        self,
        owner: TableSums,
        connection: Connection,
        shards: Sequence[int],
        columns: Collection[str] | None,
        sink: _Sink,
        wanted: set[int] | None,
    ) -> None:
        self._connection = connection
        self._database = owner._database
        self._places = owner._places
        self._lookups = owner._lookups
        self._codecs = owner._codecs
        self._shards = owner._shards
        self._chosen = shards
        self._columns = columns
        self._sink = sink
        if wanted is None and len(shards) < self._shards:
            wanted = {shard * BUCKETS_PER_SHARD + n for shard in shards for n in range(BUCKETS_PER_SHARD)}
        #: Buckets by shard · 16 + number; None: all.
        self._wanted = wanted

    def run(self) -> None:
        owns = self._owns()
        mapped = self._mapped
        ids = mapped.pop(LEGACY_ID, None)
        for name, rows in mapped.items():
            assert isinstance(rows, ColumnRows)
            is_parent = not rows.column.is_child
            self._table(name, rows, ids if is_parent and isinstance(ids, LegacyIds) else None, owns)
            ids = None if is_parent else ids
        if isinstance(ids, LegacyIds):
            self._ids(ids, owns)
        for (column_name, key), own in owns.items():  # no row stands in their way
            self._add(key, column_name, str(own.ref_key).encode(), own.data)
        self._free()

    @property
    def _mapped(self) -> dict[str, ColumnRows | LegacyIds]:
        return {
            name: rows for name, rows in self._places.mapped.items() if self._columns is None or name in self._columns
        }

    def _within(self, key: str) -> str:
        """The condition on a row key; where most shards are wanted, it would cost more than what it keeps away."""
        if len(self._chosen) * 2 > self._shards:
            return "true"
        shard = shard_sql(key, self._shards)
        if len(self._chosen) == self._chosen[-1] - self._chosen[0] + 1:
            return f"{shard} BETWEEN {self._chosen[0]} AND {self._chosen[-1]}"
        return f"{shard} = ANY ('{{{','.join(map(str, self._chosen))}}}'::bigint[])"

    def _owns(self) -> _Owns:
        """Tombs, and cells of our own, of mapped columns: the newest of each."""
        names = ", ".join(text(name) for name in self._mapped)
        owns: _Owns = {}
        if not names:
            return owns

        def keep(lines: list[bytes]) -> None:
            for line in lines:
                key, name, ref_key, body = line[:-1].split(b"\t")
                own = _Own(int(ref_key), a2b_hex(body) if body else TOMBSTONE)
                place = (a2b_hex(name), a2b_hex(key.replace(b"-", b"")))
                known = owns.get(place)
                if known is None or known.ref_key < own.ref_key:
                    owns[place] = own

        self._copy(
            f"SELECT t.row_key, {_hex_of('t.column_name')}, t.ref_key, '' FROM tripstore.tomb AS t"
            f" WHERE t.column_name IN ({names}) AND {self._within('t.row_key')}",
            keep,
        )
        self._copy(
            f"SELECT c.row_key, {_hex_of('c.column_name')}, c.ref_key, pg_catalog.encode(c.body, 'hex')"
            f" FROM tripstore.cell AS c WHERE c.column_name IN ({names}) AND {self._within('c.row_key')}",
            keep,
        )
        return owns

    def _table(self, name: str, rows: ColumnRows, ids: LegacyIds | None, owns: _Owns) -> None:
        """The rows of a mapped column; of the parent's, their legacy ids as well."""
        key, column = f"r.{rows.uuid}", rows.column
        distinct = f"DISTINCT ON ({key}) " if rows.number else ""
        order = f" ORDER BY {key}, r.{rows.number} DESC" if rows.number else ""
        number, captured = f"r.{ids.id}" if ids is not None else "0", column.captured
        values = ", ".join([key, rows.ref_key, number, *(f"r.{quoted(each)}::pg_catalog.text" for each in captured)])
        select = (
            f"SELECT {distinct}{values} FROM {rows.table} AS r WHERE {key} IS NOT NULL AND {self._within(key)}{order}"
        )

        def take(lines: list[bytes]) -> None:
            if ids is None:
                self._rows(_columns(lines), name, owns)
            else:
                self._rows_with_ids(_columns(lines), name, owns)

        self._copy(select, take)

    def _rows_with_ids(self, texts: _Columns, name: str, owns: _Owns) -> None:
        """A batch of the parent's rows: each is two cells."""
        ids, add = LEGACY_ID.encode(), self._sink.add
        salt = ids + b"\x000\x00"
        keys, places, texts = self._rows(texts, name, owns)
        for key, place, number in zip(keys, places, texts[2], strict=True):
            own = owns.pop((ids, key), None) if owns else None
            data = b'{"id":%b}' % number.encode() if own is None else own.data
            add(place, key, ids, b"0", md5(key + salt + data, usedforsecurity=False).digest())

    def _rows(self, texts: _Columns, column_name: str, owns: _Owns) -> tuple[list[bytes], list[int], _Columns]:
        """Hash a batch of rows; row keys, buckets and texts of those that are wanted."""
        keys = _keys(texts[0])
        places = self._places_of(keys)
        if self._wanted is not None:
            chosen = [place in self._wanted for place in places]
            keys, places = list(compress(keys, chosen)), list(compress(places, chosen))
            texts = [list(compress(column, chosen)) for column in texts]
        name, add = column_name.encode(), self._sink.add
        salt = name + b"\0"
        bodies = self._rendered(column_name, texts[3:])
        for key, place, number, data in zip(keys, places, texts[1], bodies, strict=True):
            ref_key = number.encode()
            if owns and (own := owns.get((name, key))) is not None:
                if number == NULL or own.ref_key > int(number):
                    continue  # it is added with those that have no row
                del owns[name, key]
            if isinstance(data, bytes) and number != NULL:
                add(place, key, name, ref_key, md5(key + salt + ref_key + b"\0" + data, usedforsecurity=False).digest())
            else:
                self._sink.refuse(place, key, name, _NO_REF_KEY if isinstance(data, bytes) else str(data))
        return keys, places, texts

    def _places_of(self, keys: Sequence[bytes]) -> list[int]:
        shards = self._shards
        return [
            first % shards * BUCKETS_PER_SHARD + (second & _BUCKET_MASK)
            for first, second in [_two_uints(md5(key, usedforsecurity=False).digest()) for key in keys]
        ]

    def _rendered(self, column_name: str, texts: _Columns) -> list[bytes | UnreadableRow]:
        """The canonical bytes of rows. What they point to is looked up on a connection that is lent: ours is busy."""
        codec = self._codecs[column_name]

        def render(lent: LegacyConnection) -> list[bytes | UnreadableRow]:
            self._lookups.fill(codec.wanted(texts), lent.rows)
            return codec.canonical(texts, lent.rows)

        return self._database.run(render, Deadline(BATCH_SECONDS)) if texts and texts[0] else []

    def _ids(self, ids: LegacyIds, owns: _Owns) -> None:
        """Legacy ids alone, when their table's own column is not asked for."""
        name, key = LEGACY_ID.encode(), f"r.{ids.uuid}"

        def take(lines: list[bytes]) -> None:
            for line in lines:
                key_text, number = line[:-1].split(b"\t")
                row_key = a2b_hex(key_text.replace(b"-", b""))
                if (name, row_key) not in owns:
                    self._add(row_key, name, b"0", b'{"id":%b}' % number)

        self._copy(f"SELECT {key}, r.{ids.id} FROM {ids.table} AS r WHERE {self._within(key)}", take)

    def _free(self) -> None:
        """Columns that no table holds."""
        mapped = ", ".join(text(name) for name in self._places.mapped)
        where = f"NOT c.column_name IN ({mapped})"
        if self._columns is not None:
            free = [text(name) for name in self._columns if name not in self._places.mapped]
            if not free:
                return
            where = f"c.column_name IN ({', '.join(free)})"

        def take(lines: list[bytes]) -> None:
            for line in lines:
                key, ref_key, name, body = line[:-1].split(b"\t")
                self._add(a2b_hex(key.replace(b"-", b"")), a2b_hex(name), ref_key, a2b_hex(body))

        self._copy(
            "SELECT DISTINCT ON (c.row_key, c.column_name) c.row_key, c.ref_key,"
            f" {_hex_of('c.column_name')}, pg_catalog.encode(c.body, 'hex')"
            f" FROM tripstore.cell AS c WHERE {where} AND {self._within('c.row_key')}"
            " ORDER BY c.row_key, c.column_name, c.ref_key DESC",
            take,
        )

    def _add(self, key: bytes, name: bytes, ref_key: bytes, data: bytes) -> None:
        first, second = _two_uints(md5(key, usedforsecurity=False).digest())
        place = first % self._shards * BUCKETS_PER_SHARD + (second & _BUCKET_MASK)
        if self._wanted is None or place in self._wanted:
            hashed = md5(key + name + b"\0" + ref_key + b"\0" + data, usedforsecurity=False).digest()
            self._sink.add(place, key, name, ref_key, hashed)

    def _copy(self, select: str, take: Callable[[list[bytes]], None]) -> None:
        lines = _Lines(take)
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY ({select}) TO STDOUT", lines, size=1 << 16)
        lines.finish()


class _Lines:
    """What COPY writes to: a row at a time."""

    def __init__(self, take: Callable[[list[bytes]], None]) -> None:
        self._take = take
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) == ROWS_PER_BATCH:
            self.finish()

    def finish(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._take(lines)


class _Summing:
    """Count and sum of every bucket."""

    def __init__(self, shards: int) -> None:
        self._counts = [0] * (shards * BUCKETS_PER_SHARD)
        self._sums = [0] * (shards * BUCKETS_PER_SHARD)
        self._doubtful: set[int] = set()

    def add(self, place: int, key: bytes, name: bytes, ref_key: bytes, hashed: bytes) -> None:
        self._counts[place] += 1
        self._sums[place] += int.from_bytes(hashed[:8], "big")

    def refuse(self, place: int, key: bytes, name: bytes, why: str) -> None:
        self._counts[place] += 1
        self._doubtful.add(place)

    def sums(self, shards: range) -> Sums:
        found: dict[Place, Bucket] = {}
        for shard in shards:
            for number in range(BUCKETS_PER_SHARD):
                n = shard * BUCKETS_PER_SHARD + number
                found[Place(shard, number)] = Bucket(shard, number, self._counts[n], self._sums[n] % 2**64)
        return Sums(found, frozenset(Place(*divmod(n, BUCKETS_PER_SHARD)) for n in self._doubtful))


class _Listing:
    """Every cell by its key."""

    def __init__(self) -> None:
        self.found: list[CellDigest] = []

    def add(self, place: int, key: bytes, name: bytes, ref_key: bytes, hashed: bytes) -> None:
        self.found.append(CellDigest(key, name.decode(), int(ref_key), int.from_bytes(hashed[:8], "big")))

    def refuse(self, place: int, key: bytes, name: bytes, why: str) -> None:
        self.found.append(CellDigest(key, name.decode(), 0, 0, why))


def _hex_of(column: str) -> str:
    """A text as COPY has nothing to escape in."""
    return f"pg_catalog.encode(pg_catalog.convert_to({column}, 'UTF8'), 'hex')"


def _columns(lines: Sequence[bytes]) -> _Columns:
    """The texts of each column, still escaped."""
    rows = b"".join(lines).decode().split("\n")
    rows.pop()
    return list(zip(*[row.split("\t") for row in rows], strict=True))


def _keys(texts: Sequence[str]) -> list[bytes]:
    """UUIDs as 16 bytes each."""
    data = bytes.fromhex("".join(texts).replace("-", ""))
    return [data[first : first + 16] for first in range(0, len(data), 16)]
