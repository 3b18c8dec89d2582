"""`DecoderDiff`: rows taken at random from the tables, decoded by somebody else, against the cells of Schemaless.

A row says which version it is, and a version never changes: what differs differs for ever. A version that Schemaless
does not have is another comparison's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec

from schemaless_core.canonical import Json
from schemaless_core.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, quoted
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.diffing.decoder import path_of_difference, ref_key_of, select_of
from validation.differences import BYTES, CellClass, Difference
from validation.portions import Portion, counted
from validation.suspects import READ_SECONDS

PREFIX = "decoder_"
SEEN_BY = "decoder"
#: Tables of so many rows are read whole: a sample of pages could miss all of them.
SMALL = 10_000
_SIZE = """\
SELECT COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::float8 FROM pg_catalog.pg_class AS c
WHERE c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s::pg_catalog.regclass))"""


class Broken:
    """A cell whose bytes are no JSON."""


class DecoderDiff:
    """A part is one column; a step is all of it."""

    def __init__(
        self, database: LegacyDatabase, layout: Layout, store: Datastore, sample: int, columns: Collection[str] | None
    ) -> None:
        self._database = database
        self._layout = layout
        self._store = store.as_copier().using(deadline=READ_SECONDS)
        self._sample = sample
        self._columns = columns

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        counts, found = Counter[str](), list[Difference]()
        for column in self._layout.columns.values():
            if self._columns is None or column.name in self._columns:
                self._compare(column, counts, found)
        counted(found, counts, PREFIX)
        return Portion("done", True, counts, found)

    def _compare(self, column: MappedColumn, counts: Counter[str], found: list[Difference]) -> None:
        sampled = self._rows(column)
        keys = [CellKey(UUID(row[0]), column.name, ref_key_of(column, row[1], row[2])) for row in sampled]
        for key, row, cell in zip(keys, sampled, self._cells(keys), strict=True):
            if cell is None or (not isinstance(cell, Broken) and cell.body is None):
                counts[f"{PREFIX}skipped"] += 1
                continue
            path = BYTES if isinstance(cell, Broken) else path_of_difference(column, row[3:], cell.body)
            if path is None:
                counts[f"{PREFIX}equal"] += 1
            else:
                ours = key.ref_key
                found.append(Difference(CellClass.DIFFERS, key.row_key, column.name, ours, ours, path, seen_by=SEEN_BY))

    def _cells(self, keys: Sequence[CellKey]) -> Sequence[Cell | Broken | None]:
        try:
            return self._store.get_cells(keys)
        except msgspec.MsgspecError:
            return [self._cell(key) for key in keys]

    def _cell(self, key: CellKey) -> Cell | Broken | None:
        try:
            return self._store.get_cell(*key)
        except msgspec.MsgspecError:
            return Broken()

    def _rows(self, column: MappedColumn) -> Sequence[tuple[Any, ...]]:
        table = column.table.sql
        with connected(self._database.url, "diff", statement_timeout="60000", row_security="off") as connection:
            ((size,),) = rows(connection, _SIZE, (table,))
            share = 100.0 if size < SMALL else min(100.0, 300.0 * self._sample / size)
            versions = [f"r.{quoted(name)}" for name in (column.ref_key.column, column.ref_key.version) if name]
            present = " AND ".join(f"{name} IS NOT NULL" for name in [f"r.{quoted(column.uuid)}", *versions])
            select = f"SELECT {select_of(column)} FROM {table} AS r TABLESAMPLE SYSTEM ({share:.6f})"
            return rows(connection, f"{select} WHERE {present} ORDER BY pg_catalog.random() LIMIT {self._sample}")
