"""`SumsWalk`: one pass over everything that holds latest cells, by COPY and in no order.

Rows stream through: what is kept of them are hashes. Beside them stand tombs and cells of our own, few for mapped
columns, which are read first and take the place of the row that they are newer than.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import md5
from itertools import compress, repeat
from struct import Struct
from typing import NamedTuple, cast

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.deadline import Deadline
from schemaless_core.sharding import BUCKETS_PER_SHARD
from schemaless_core.short_md5 import short_md5
from tripstore.backends.postgres.cells.places import ColumnPlaces
from tripstore.backends.postgres.cells.rows import ColumnRows, LegacyIds, text
from tripstore.backends.postgres.cells.scan import shard_sql
from tripstore.backends.postgres.cells.sums_lines import BatchedLines, Texts, columns_of, row_keys
from tripstore.backends.postgres.cells.sums_sinks import Sink
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.copy_text import NULL
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID, quoted
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Of one batch, its looks at other tables included.
BATCH_SECONDS = 60.0

_NO_REF_KEY = "it has no ref key"
_IDS = LEGACY_ID.encode()
#: The first two numbers of many md5s.
_two_numbers = Struct(">II8x").iter_unpack


class Own(NamedTuple):
    """A tomb or a cell of our own."""

    ref_key: int
    data: bytes


#: By column and row key.
_Owns = dict[tuple[bytes, bytes], Own]


class Wanted(NamedTuple):
    """What is to be looked at: shards in order, buckets by shard · 16 + number (None: all), columns (None: all)."""

    shards: Sequence[int]
    buckets: set[int] | None
    columns: Collection[str] | None


class Tables(NamedTuple):
    """Where cells are, and how rows are read."""

    database: LegacyDatabase
    places: ColumnPlaces
    codecs: Mapping[str, ColumnarCodec]
    lookups: LookupCache
    shards: int


class SumsWalk:
    """On a connection with an open snapshot."""

    def __init__(self, connection: Connection, tables: Tables, wanted: Wanted, sink: Sink) -> None:
        self._connection = connection
        self._tables = tables
        self._chosen, self._buckets, self._columns = wanted
        self._sink = sink

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
            self._legacy_ids(ids, owns)
        for (own_name, key), own in owns.items():  # no row stands in their way
            self._add(own_name, [key], [str(own.ref_key)], [own.data])
        self._free()

    @property
    def _mapped(self) -> dict[str, ColumnRows | LegacyIds]:
        mapped = self._tables.places.mapped
        return {name: rows for name, rows in mapped.items() if self._columns is None or name in self._columns}

    # The places that hold cells.

    def _owns(self) -> _Owns:
        """Tombs, and cells of our own, of mapped columns: the newest of each."""
        names = ", ".join(text(name) for name in self._mapped)
        owns: _Owns = {}
        if not names:
            return owns

        def keep(lines: list[bytes]) -> None:
            keys, names, ref_keys, bodies = columns_of(lines)
            for key, name, ref_key, body in zip(row_keys(keys), names, ref_keys, bodies, strict=True):
                own = Own(int(ref_key), bytes.fromhex(body) if body else TOMBSTONE)
                place = (bytes.fromhex(name), key)
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
        number = f"r.{ids.id}" if ids is not None else "0"
        captured = [f"r.{quoted(each)}::pg_catalog.text" for each in column.captured]
        values = ", ".join([key, rows.ref_key, number, *captured])
        where = f"{key} IS NOT NULL AND {self._within(key)}"

        def take(lines: list[bytes]) -> None:
            self._rows(name, columns_of(lines), owns, has_ids=ids is not None)

        self._copy(f"SELECT {distinct}{values} FROM {rows.table} AS r WHERE {where}{order}", take)

    def _rows(self, column_name: str, texts: Texts, owns: _Owns, *, has_ids: bool) -> None:
        """A batch of rows: row key, ref key, legacy id, then what is captured. With legacy ids each is two cells."""
        keys = row_keys(texts[0])
        places = self._places(keys)
        if self._buckets is not None:
            chosen = [place in self._buckets for place in places]
            keys, places = list(compress(keys, chosen)), list(compress(places, chosen))
            texts = [list(compress(column, chosen)) for column in texts]
        if not keys:
            return
        name, ref_keys = column_name.encode(), texts[1]
        bodies = self._rendered(column_name, texts[3:])
        has_own = bool(owns) and any((name, key) in owns for key in keys)
        if has_own or NULL in ref_keys or set(map(type, bodies)) != {bytes}:
            self._one_by_one(name, places, keys, ref_keys, bodies, owns)
        else:
            self._sink.add(name, places, keys, ref_keys, _md5s(name, keys, ref_keys, cast(Sequence[bytes], bodies)))
        if has_ids:
            datas = [b'{"id":%b}' % number.encode() for number in texts[2]]
            for n, key in enumerate(keys if owns else ()):
                own = owns.pop((_IDS, key), None)
                datas[n] = datas[n] if own is None else own.data
            self._sink.add(_IDS, places, keys, repeat("0", len(keys)), _md5s(_IDS, keys, ["0"] * len(keys), datas))

    def _one_by_one(
        self,
        name: bytes,
        places: Sequence[int],
        keys: Sequence[bytes],
        ref_keys: Sequence[str],
        bodies: Sequence[bytes | UnreadableRow],
        owns: _Owns,
    ) -> None:
        for place, key, ref_key, data in zip(places, keys, ref_keys, bodies, strict=True):
            own = owns.get((name, key))
            if own is not None:
                if ref_key == NULL or own.ref_key > int(ref_key):
                    continue  # it is added with those that have no row
                del owns[name, key]
            if isinstance(data, UnreadableRow):
                self._sink.refuse(name, place, key, str(data))
            elif ref_key == NULL:
                self._sink.refuse(name, place, key, _NO_REF_KEY)
            else:
                self._sink.add(name, [place], [key], [ref_key], _md5s(name, [key], [ref_key], [data]))

    def _legacy_ids(self, ids: LegacyIds, owns: _Owns) -> None:
        """Legacy ids alone, when their table's own column is not asked for."""

        def take(lines: list[bytes]) -> None:
            texts = columns_of(lines)
            pairs = [(key, number) for key, number in zip(row_keys(texts[0]), texts[1], strict=True)]
            keys = [key for key, _number in pairs if (_IDS, key) not in owns]
            datas = [b'{"id":%b}' % number.encode() for key, number in pairs if (_IDS, key) not in owns]
            self._add(_IDS, keys, ["0"] * len(keys), datas)

        key = f"r.{ids.uuid}"
        where = f"{key} IS NOT NULL AND {self._within(key)}"
        self._copy(f"SELECT {key}, r.{ids.id} FROM {ids.table} AS r WHERE {where}", take)

    def _free(self) -> None:
        """Columns that no table holds."""
        mapped = self._tables.places.mapped
        where = f"NOT c.column_name IN ({', '.join(map(text, mapped))})"
        if self._columns is not None:
            free = [text(name) for name in self._columns if name not in mapped]
            if not free:
                return
            where = f"c.column_name IN ({', '.join(free)})"

        def take(lines: list[bytes]) -> None:
            keys, ref_keys, names, bodies = columns_of(lines)
            for key, ref_key, name, body in zip(row_keys(keys), ref_keys, names, bodies, strict=True):
                self._add(bytes.fromhex(name), [key], [ref_key], [bytes.fromhex(body)])

        self._copy(
            f"SELECT DISTINCT ON (c.row_key, c.column_name) c.row_key, c.ref_key, {_hex_of('c.column_name')},"
            f" pg_catalog.encode(c.body, 'hex') FROM tripstore.cell AS c WHERE {where} AND {self._within('c.row_key')}"
            " ORDER BY c.row_key, c.column_name, c.ref_key DESC",
            take,
        )

    # What all of them need.

    def _add(self, name: bytes, keys: Sequence[bytes], ref_keys: Sequence[str], datas: Sequence[bytes]) -> None:
        places = self._places(keys)
        if self._buckets is not None:
            chosen = [place in self._buckets for place in places]
            places, keys = list(compress(places, chosen)), list(compress(keys, chosen))
            ref_keys, datas = list(compress(ref_keys, chosen)), list(compress(datas, chosen))
        self._sink.add(name, places, keys, ref_keys, _md5s(name, keys, ref_keys, datas))

    def _places(self, keys: Sequence[bytes]) -> list[int]:
        shards = self._tables.shards
        return [
            first % shards * BUCKETS_PER_SHARD + second % BUCKETS_PER_SHARD
            for first, second in _two_numbers(b"".join([short_md5(key).digest() for key in keys]))
        ]

    def _rendered(self, column_name: str, texts: Texts) -> Sequence[bytes | UnreadableRow]:
        """The canonical bytes of rows. What they point to is looked up on a connection that is lent: ours is busy."""
        codec, lookups = self._tables.codecs[column_name], self._tables.lookups

        def render(lent: LegacyConnection) -> Sequence[bytes | UnreadableRow]:
            lookups.fill(codec.wanted(texts), lent.rows)
            return codec.canonical(texts, lent.rows)

        return self._tables.database.run(render, Deadline(BATCH_SECONDS))

    def _within(self, key: str) -> str:
        """The condition on a row key; where most shards are wanted, it would cost more than what it keeps away."""
        first, last, shards = self._chosen[0], self._chosen[-1], self._tables.shards
        if len(self._chosen) * 2 > shards:
            return "true"
        shard = shard_sql(key, shards)
        if len(self._chosen) == last - first + 1:
            return f"{shard} BETWEEN {first} AND {last}"
        return f"{shard} = ANY ('{{{','.join(map(str, self._chosen))}}}'::bigint[])"

    def _copy(self, select: str, take: Callable[[list[bytes]], None]) -> None:
        lines = BatchedLines(take)
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY ({select}) TO STDOUT", lines)
        lines.finish()


def _md5s(name: bytes, keys: Sequence[bytes], ref_keys: Sequence[str], datas: Sequence[bytes]) -> list[bytes]:
    """As `cell_hash` has it."""
    between = {ref_key: b"%b\0%b\0" % (name, ref_key.encode()) for ref_key in set(ref_keys)}
    return [
        md5(key + between[ref_key] + data, usedforsecurity=False).digest()
        for key, ref_key, data in zip(keys, ref_keys, datas, strict=True)
    ]


def _hex_of(column: str) -> str:
    """A text as COPY has nothing to escape in."""
    return f"pg_catalog.encode(pg_catalog.convert_to({column}, 'UTF8'), 'hex')"
