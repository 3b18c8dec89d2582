"""`ChunkReading`: the rows of one chunk become encoded cells, table by table; what no cell can hold is set aside."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Protocol
from uuid import UUID

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.encoded import EncodedCell
from tripstore.backends.postgres.cells.past.copied_lines import CopiedLines
from tripstore.backends.postgres.cells.past.sources import PastSource, TableSource
from tripstore.backends.postgres.cells.rows import escaped
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.copy_text import NULL, unescaped
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, quoted
from tripstore.handover.ports import Past, Unreadable

#: Rows without UUID that are told of one by one.
WITHOUT_UUID_MAX = 100

_LEGACY_ID = LEGACY_ID.encode()
_ROW_KEY = itemgetter(0)

#: How many keys are listed the planner does not know. A scan would compare each row with each of them, and a bitmap is
#: made of all of them before the first row: neither rests.
BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
_OWN_IDS = f"""\
SELECT c.row_key FROM tripstore.cell AS c
WHERE c.column_name = '{LEGACY_ID}' AND c.row_key = ANY (%s::pg_catalog.uuid[])"""
_IN_NO_TABLE = """\
SELECT count(*) FROM unnest(%s::pg_catalog.uuid[]) AS k (row_key)
WHERE NOT EXISTS (SELECT FROM {table} WHERE {key} = k.row_key)"""


class ReadRows(Protocol):
    """Which rows are read: some row keys, or what stands in some blocks."""

    def within(self, key: str) -> str:
        """The condition on a row; `key` is its row key, an expression."""
        ...


class ChunkReading:
    """Reads on the cursor of an open transaction."""

    def __init__(self, cursor: Cursor, lookups: LookupCache, bytes_max: int | None, rest: str = "") -> None:
        self._cursor = cursor
        self._lookups = lookups
        self._bytes_max = bytes_max
        #: A condition that holds for every row, and takes its time.
        self.rest = rest
        #: That Postgres took to answer, rests included.
        self.seconds = 0.0
        #: Lines that COPY sent.
        self.looked_at = 0
        #: That the longest COPY sent.
        self.bytes = 0
        self._rows: set[bytes] = set()
        self._ids: list[tuple[bytes, bytes]] = []
        self._own_ids: set[bytes] = set()
        self._cells: list[EncodedCell] = []
        self._unreadable: list[Unreadable] = []

    def rows_of(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        begun = time.perf_counter()
        self._cursor.execute(statement, values)
        found = self._cursor.fetchall()
        self.seconds += time.perf_counter() - begun
        return found

    def table(self, table: TableSource, rows: ReadRows, codec: ColumnarCodec, columns: Collection[str] | None) -> None:
        """The rows of a mapped table."""
        texts = self._copied(table.source, rows)
        if not texts:
            return
        keys, numbers, *values = _keys(texts[0]), texts[1], *texts[2:]
        self._rows.update(keys)
        if table.has_id:
            ids, *values = values
            self._ids += zip(keys, map(_id_body, ids), strict=True)
        name = table.column.name
        if columns is not None and name not in columns:
            return
        self._lookups.fill(codec.wanted(values), self.rows_of)
        bodies = codec.canonical(values, self.rows_of)
        if NULL in numbers or not all(type(body) is bytes for body in bodies):
            self._one_by_one(table, keys, numbers, bodies)
        else:
            self._add(keys, repeat(name.encode()), numbers, bodies)

    def tombs(self, source: PastSource, rows: ReadRows) -> None:
        texts = self._copied(source, rows)
        if texts:
            keys = _keys(texts[0])
            self._rows.update(keys)
            self._add(keys, _names(texts[1]), texts[2], repeat(TOMBSTONE))

    def own_cells(self, source: PastSource, rows: ReadRows) -> None:
        """Cells of our own. A legacy id among them is that of a row that was deleted, and came back with another."""
        texts = self._copied(source, rows)
        if texts:
            keys = _keys(texts[0])
            self._rows.update(keys)
            names = _names(texts[1])
            self._own_ids.update(key for key, name in zip(keys, names, strict=True) if name == _LEGACY_ID)
            # bytea stands in hexadecimal digits behind an escaped backslash and an x.
            self._add(keys, names, texts[2], [bytes.fromhex(text[3:]) for text in texts[3]])

    def by_index(self) -> None:
        """From now on rows are looked for by their keys, one by one."""
        self._cursor.execute(BY_INDEX)

    def leave_own_ids(self) -> None:
        """Where only tables were read: rows that came back with another id have that of before among our own cells."""
        keys = [str(UUID(bytes=key)) for key, _ in self._ids]
        if keys:
            self._own_ids.update(UUID(str(key)).bytes for (key,) in self.rows_of(_OWN_IDS, (keys,)))

    @property
    def rows(self) -> int:
        """How many row keys were read."""
        return len(self._rows)

    def orphans(self, parent: PastSource) -> int:
        """How many of them are in no row of the parent's table."""
        if not self._rows:
            return 0
        keys = [str(UUID(bytes=key)) for key in self._rows]
        statement = _IN_NO_TABLE.format(table=escaped(parent.table), key=escaped(parent.key))
        ((count,),) = self.rows_of(statement, (keys,))
        return int(count)

    def without_uuid(self, layout: Layout, tables: Iterable[TableSource]) -> None:
        """Rows that have no row key yet: none is among the rows of any chunk. All are counted, some are named."""
        for table in tables:
            column = table.column
            told_by = layout.row_key.id if column.parent is None else column.parent
            rows = f"FROM {table.source.table} WHERE r.{quoted(column.uuid)} IS NULL"
            some = f"SELECT r.{quoted(told_by)}::pg_catalog.text {rows} LIMIT {WITHOUT_UUID_MAX}"
            named = self.rows_of(escaped(some), ())
            for (number,) in named:
                reason = f"it is NULL where {told_by} is {number}"
                self._unreadable.append(Unreadable(None, column.name, None, column.uuid, reason))
            if len(named) == WITHOUT_UUID_MAX:
                ((count,),) = self.rows_of(escaped(f"SELECT count(*) {rows}"), ())
                if more := count - len(named):
                    reason = f"it is NULL in {more:,} more rows"
                    self._unreadable.append(Unreadable(None, column.name, None, column.uuid, reason, more))

    def past(self, epoch: int, after: UUID | None) -> Past:
        """All that was read."""
        own = self._own_ids
        ids = [EncodedCell(key, _LEGACY_ID, LEGACY_ID_REF_KEY, body) for key, body in self._ids if key not in own]
        # The order of the tables stays within a row.
        cells = sorted(ids + self._cells, key=_ROW_KEY)
        return Past(tuple(cells), epoch, len(self._rows), tuple(self._unreadable), after, looked_at=self.looked_at)

    def _copied(self, source: PastSource, rows: ReadRows) -> list[list[str]]:
        lines = CopiedLines(self._bytes_max)
        where = f"{source.where} AND {rows.within(source.key)}{self.rest}"
        begun = time.perf_counter()
        self._cursor.copy_expert(f"COPY (SELECT {source.select} FROM {source.table} WHERE {where}) TO STDOUT", lines)
        self.seconds += time.perf_counter() - begun
        self.looked_at += len(lines)
        self.bytes = max(self.bytes, lines.bytes)
        return lines.columns()

    def _add(
        self, keys: Iterable[bytes], names: Iterable[bytes], numbers: Iterable[str], bodies: Iterable[Any]
    ) -> None:
        self._cells += map(EncodedCell, keys, names, map(int, numbers), bodies)

    def _one_by_one(
        self, table: TableSource, keys: Sequence[bytes], numbers: Sequence[str], bodies: Sequence[Any]
    ) -> None:
        column = table.column
        for key, number, body in zip(keys, numbers, bodies, strict=True):
            row_key = UUID(bytes=key)
            if number == NULL:
                field = str(column.ref_key.column or column.ref_key.version)
                reason = "it is NULL, and the row has no ref key"
                self._unreadable.append(Unreadable(row_key, column.name, None, field, reason))
            elif type(body) is bytes:
                self._add([key], [column.name.encode()], [number], [body])
            else:
                self._unreadable.append(Unreadable(row_key, column.name, int(number), body.path, body.reason))


def _keys(texts: Sequence[str]) -> list[bytes]:
    """UUIDs as 16 bytes each."""
    data = bytes.fromhex("".join(texts).replace("-", ""))
    return [data[first : first + 16] for first in range(0, len(data), 16)]


def _names(texts: Sequence[str]) -> list[bytes]:
    known = {text: str(unescaped(text)).encode() for text in set(texts)}
    return [known[text] for text in texts]


def _id_body(number: str) -> bytes:
    """The canonical bytes of `legacy_id_body`: an integer is written alike by all."""
    return b'{"id":%b}' % number.encode()
