"""`SumsWalk`: one pass over everything that holds latest cells, by COPY and in no order.

Rows stream through: what is kept of them are hashes. Beside them stand tombs and cells of our own, few for mapped
columns, which are read first and take the place of the row that they are newer than.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import md5
from itertools import compress, repeat
from struct import Struct
from typing import NamedTuple, cast

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.children import FACTS, child_of
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from schemaless_core.cell.short_md5 import short_md5
from tripstore.backends.postgres.cells.read.scan import shard_sql
from tripstore.backends.postgres.cells.rows import ColumnRows, LegacyIds, text
from tripstore.backends.postgres.cells.sums.beside import last_owns
from tripstore.backends.postgres.cells.sums.lines import Texts, columns_of, copied, row_keys
from tripstore.backends.postgres.cells.sums.rendering import rendered
from tripstore.backends.postgres.cells.sums.sinks import Sink
from tripstore.backends.postgres.cells.sums.tables import Tables
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.copy_text import NULL
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID, quoted

_NO_REF_KEY = "it has no ref key"
_IDS = LEGACY_ID.encode()
_BODY = "pg_catalog.encode(c.body, 'hex')"
#: The first two numbers of many md5s.
_two_numbers = Struct(">II8x").iter_unpack


class Own(NamedTuple):
    """A tomb or a cell of our own."""

    ref_key: int
    data: bytes


#: By row key and which child it is; 0 in a column that is one row.
_Owns = dict[bytes, dict[int, Own]]
#: By row key.
_Pairs = dict[bytes, Own]


class WantedSums(NamedTuple):
    """What is to be looked at: shards in order, buckets by shard · 16 + number (None: all), columns (None: all)."""

    shards: Sequence[int]
    buckets: set[int] | None
    columns: Collection[str] | None


class SumsWalk:
    """On a connection with an open snapshot."""

    def __init__(self, connection: Connection, tables: Tables, wanted: WantedSums, sink: Sink) -> None:
        self._connection = connection
        self._tables = tables
        self._chosen, self._buckets, self._columns = wanted
        self._sink = sink
        #: By column, how many rows of its table were looked at.
        self.rows_seen = Counter[str]()

    def run(self) -> None:
        mapped = self._mapped
        ids = mapped.pop(LEGACY_ID, None)
        pairs = self._own_ids() if isinstance(ids, LegacyIds) else {}
        for name, rows in mapped.items():
            assert isinstance(rows, ColumnRows)
            is_parent = not rows.column.is_child
            self._table(name, rows, ids if is_parent and isinstance(ids, LegacyIds) else None, pairs)
            ids = None if is_parent else ids
        if isinstance(ids, LegacyIds):
            self._legacy_ids(ids, pairs)
        self._add_owns(_IDS, {key: {0: own} for key, own in pairs.items()})  # no row stands in their way
        self._free()

    @property
    def _mapped(self) -> dict[str, ColumnRows | LegacyIds]:
        mapped = self._tables.places.mapped
        return {name: rows for name, rows in mapped.items() if self._columns is None or name in self._columns}

    @property
    def tables(self) -> dict[str, ColumnRows]:
        """The tables that are looked at, by column."""
        return {name: rows for name, rows in self._mapped.items() if isinstance(rows, ColumnRows)}

    # The places that hold cells.

    def _own_ids(self) -> _Pairs:
        """Pairs of rows that were deleted."""
        owns: _Pairs = {}

        def keep(lines: list[bytes]) -> None:
            keys, ref_keys, bodies = columns_of(lines)
            for key, ref_key, body in zip(row_keys(keys), ref_keys, bodies, strict=True):
                known = owns.get(key)
                if known is None or known.ref_key < int(ref_key):
                    owns[key] = Own(int(ref_key), bytes.fromhex(body))

        where = f"c.column_name = {text(LEGACY_ID)} AND {self._within('c.row_key')}"
        self._copied(f"SELECT c.row_key, c.ref_key, {_BODY} FROM tripstore.cell AS c WHERE {where}", keep)
        return owns

    def _owns(self, name: str, rows: ColumnRows) -> _Owns:
        """The last tombs, and cells of our own, of a column's children that have a row; all others are added at once.

        There may be as many as rows were ever deleted: none of them is kept.
        """
        owns: defaultdict[bytes, dict[int, Own]] = defaultdict(dict)

        def take(lines: list[bytes]) -> None:
            keys, ref_keys, bodies, is_there = columns_of(lines)
            datas = [bytes.fromhex(body) if body else TOMBSTONE for body in bodies]
            alone = []
            for key, ref_key, data, there in zip(row_keys(keys), ref_keys, datas, is_there, strict=True):
                if there == "t":
                    owns[key][self._child(name, ref_key)] = Own(int(ref_key), data)
                else:
                    alone.append((key, ref_key, data))
            if alone:
                self._add(name.encode(), *zip(*alone, strict=True))

        self._copied(last_owns(rows, self._tables.children.get(name), self._within), take)
        return dict(owns)

    def _table(self, name: str, rows: ColumnRows, ids: LegacyIds | None, pairs: _Pairs) -> None:
        """The rows of a mapped column; of the parent's, their legacy ids as well."""
        owns = self._owns(name, rows)
        key, column = f"r.{rows.uuid}", rows.column
        is_one = rows.number and name not in self._tables.children
        distinct = f"DISTINCT ON ({key}) " if is_one else ""
        order = f" ORDER BY {key}, r.{rows.number} DESC" if is_one else ""
        number = f"r.{ids.id}" if ids is not None else "0"
        captured = [f"r.{quoted(each)}::pg_catalog.text" for each in column.captured]
        values = ", ".join([key, rows.ref_key, number, *captured])
        where = f"{key} IS NOT NULL AND {self._within(key)}"

        def take(lines: list[bytes]) -> None:
            self._rows(name, columns_of(lines), owns, pairs if ids is not None else None)

        self._copied(f"SELECT {distinct}{values} FROM {rows.table} AS r WHERE {where}{order}", take)
        self._add_owns(name.encode(), owns)

    def _rows(self, column_name: str, texts: Texts, owns: _Owns, pairs: _Pairs | None) -> None:
        """A batch of rows: row key, ref key, legacy id, then what is captured. With pairs of ids each is two cells."""
        keys = row_keys(texts[0])
        places = self._places(keys)
        if self._buckets is not None:
            chosen = [place in self._buckets for place in places]
            keys, places = list(compress(keys, chosen)), list(compress(places, chosen))
            texts = [list(compress(column, chosen)) for column in texts]
        if not keys:
            return
        self.rows_seen[column_name] += len(keys)
        name, ref_keys = column_name.encode(), texts[1]
        bodies = rendered(self._tables, column_name, texts[3:])
        has_own = bool(owns) and any(key in owns for key in keys)
        if has_own or NULL in ref_keys or set(map(type, bodies)) != {bytes}:
            self._one_by_one(column_name, places, keys, ref_keys, bodies, owns)
        else:
            self._sink.add(name, places, keys, ref_keys, _md5s(name, keys, ref_keys, cast(Sequence[bytes], bodies)))
        if pairs is not None:
            datas = [b'{"id":%b}' % number.encode() for number in texts[2]]
            for n, key in enumerate(keys if pairs else ()):
                own = pairs.pop(key, None)
                datas[n] = datas[n] if own is None else own.data
            self._sink.add(_IDS, places, keys, repeat("0", len(keys)), _md5s(_IDS, keys, ["0"] * len(keys), datas))

    def _one_by_one(
        self,
        column_name: str,
        places: Sequence[int],
        keys: Sequence[bytes],
        ref_keys: Sequence[str],
        bodies: Sequence[bytes | UnreadableRow],
        owns: _Owns,
    ) -> None:
        name = column_name.encode()
        for place, key, ref_key, data in zip(places, keys, ref_keys, bodies, strict=True):
            if ref_key == NULL:
                self._sink.refuse(name, place, key, "0", _NO_REF_KEY)
                continue
            child = self._child(column_name, ref_key)
            own = self._own(column_name, owns.get(key, {}), child)
            if own is not None:
                if own.ref_key > int(ref_key):
                    # It is added when all rows were seen. A row that came back below its tombstone, unseen by capture,
                    # is there for SQL alone: a comparison of cells does not reach it (I12).
                    self.rows_seen[column_name] -= own.data == TOMBSTONE
                    continue
                del owns[key][child]
            if isinstance(data, UnreadableRow):
                self._sink.refuse(name, place, key, ref_key, str(data))
            else:
                self._sink.add(name, [place], [key], [ref_key], _md5s(name, [key], [ref_key], [data]))

    def _own(self, column_name: str, by_child: Mapping[int, Own], child: int) -> Own | None:
        """What stands beside a child's row; of a fact the tombstone above it, if there is one."""
        if self._tables.children.get(column_name) == FACTS:
            above = (own for own in by_child.values() if own.data == TOMBSTONE and own.ref_key > child)
            return next(above, by_child.get(child))
        return by_child.get(child)

    def _child(self, column_name: str, ref_key: str) -> int:
        return child_of(self._tables.children, column_name, int(ref_key)) or 0

    def _add_owns(self, name: bytes, owns: _Owns) -> None:
        for key, by_child in owns.items():
            for own in by_child.values():
                self._add(name, [key], [str(own.ref_key)], [own.data])

    def _legacy_ids(self, ids: LegacyIds, owns: _Pairs) -> None:
        """Legacy ids alone, when their table's own column is not asked for."""

        def take(lines: list[bytes]) -> None:
            texts = columns_of(lines)
            pairs = [(key, number) for key, number in zip(row_keys(texts[0]), texts[1], strict=True)]
            keys = [key for key, _number in pairs if key not in owns]
            datas = [b'{"id":%b}' % number.encode() for key, number in pairs if key not in owns]
            self._add(_IDS, keys, ["0"] * len(keys), datas)

        key = f"r.{ids.uuid}"
        where = f"{key} IS NOT NULL AND {self._within(key)}"
        self._copied(f"SELECT {key}, r.{ids.id} FROM {ids.table} AS r WHERE {where}", take)

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

        self._copied(
            f"SELECT DISTINCT ON (c.row_key, c.column_name) c.row_key, c.ref_key, {_hex_of('c.column_name')},"
            f" {_BODY} FROM tripstore.cell AS c WHERE {where} AND {self._within('c.row_key')}"
            " ORDER BY c.row_key, c.column_name, c.ref_key DESC",
            take,
        )

    # What all of them need.

    def _copied(self, select: str, take: Callable[[list[bytes]], None]) -> None:
        copied(self._connection, select, take, self._tables.turns)

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

    def _within(self, key: str) -> str:
        """The condition on a row key; where most shards are wanted, it would cost more than what it keeps away."""
        first, last, shards = self._chosen[0], self._chosen[-1], self._tables.shards
        if len(self._chosen) * 2 > shards:
            return "true"
        shard = shard_sql(key, shards)
        if len(self._chosen) == last - first + 1:
            return f"{shard} BETWEEN {first} AND {last}"
        return f"{shard} = ANY ('{{{','.join(map(str, self._chosen))}}}'::bigint[])"


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
