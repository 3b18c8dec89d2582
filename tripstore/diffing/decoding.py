"""`DecoderDiff`: rows taken at random from the tables, decoded by somebody else, against the cells of Schemaless.

Beside them those that an earlier sample found wrong: another sample would look elsewhere.

A row says which version it is, and a version never changes: what differs differs for ever. A version that Schemaless
does not have is another comparison's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg2
import psycopg2.errors

from schemaless_core.canonical import Json
from schemaless_core.cell import Cell, CellKey
from schemaless_core.children import child_of
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.cells.scan import shard_sql
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, quoted
from tripstore.backends.postgres.sizes import ABOUT_ROWS
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import translating
from tripstore.diffing.decoder import path_of_difference, ref_key_of, select_of
from validation.compare import BYTES
from validation.differences import CellClass, Difference
from validation.portions import Portion, counted
from validation.suspects import READ_SECONDS

PREFIX = "decoder_"
SEEN_BY = "decoder"
#: Tables of so many rows are read whole, and of larger ones so many: pages are chosen, of few there might be none.
SMALL = 10_000
#: Rows that are looked at for one that is wanted.
SPARE = 3
#: Rows of one table that are looked at, however few of them are of the shards that are wanted.
LOOKED_AT_MAX = 5_000_000
SECONDS = 60
#: Of a page of a table that was never analysed: few, so that enough pages are looked at.
ROWS_PER_PAGE = 10
_HINT = (
    "`tripstore diff resume` tries again. If it stays so, begin another diff with fewer --decoded rows, or with none."
)


class Broken:
    """A cell whose bytes are no JSON."""


class DecoderDiff:
    """One part, and one step: so many rows of every column, of some shards. Its bounds: which rows to see again."""

    def __init__(
        self,
        database: LegacyDatabase,
        layout: Layout,
        store: Datastore,
        sample: int,
        columns: Collection[str] | None,
        shards: range,
    ) -> None:
        self._database = database
        self._layout = layout
        self._store = store.as_copier().using(deadline=READ_SECONDS)
        self._sample = sample
        self._columns = columns
        self._shards = shards
        self._shards_total = store.config.shards

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        assert isinstance(bounds, dict)
        counts, found = Counter[str](), list[Difference]()
        for column in self._layout.columns.values():
            if self._columns is None or column.name in self._columns:
                self._compare(column, bounds.get(column.name), counts, found)
        counted(found, counts, PREFIX)
        return Portion("done", True, counts, found)

    def _compare(self, column: MappedColumn, again: Json, counts: Counter[str], found: list[Difference]) -> None:
        sampled = self._rows(column, again)
        keys = [CellKey(UUID(row[0]), column.name, ref_key_of(column, row[1], row[2])) for row in sampled]
        for key, row, cell in zip(keys, sampled, self._cells(keys), strict=True):
            if cell is None or (not isinstance(cell, Broken) and cell.body is None):
                counts[f"{PREFIX}skipped"] += 1
                continue
            path = BYTES if isinstance(cell, Broken) else path_of_difference(column, row[3:], cell.body)
            if path is None:
                counts[f"{PREFIX}equal"] += 1
            else:
                ours, child = key.ref_key, child_of(self._layout.child_bits, *key[1:])
                seen = Difference(
                    CellClass.DIFFERS, key.row_key, column.name, ours, ours, path, seen_by=SEEN_BY, child=child
                )
                found.append(seen)

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

    def _rows(self, column: MappedColumn, again: Json) -> Sequence[tuple[Any, ...]]:
        """Each once."""
        timeout = str(SECONDS * 1000)
        with (
            translating(),
            connected(self._database.url, "diff", statement_timeout=timeout) as connection,
        ):
            try:
                ((size,),) = rows(connection, ABOUT_ROWS, (column.table.sql, ROWS_PER_PAGE))
                sampled = rows(connection, self._select(column, size))
                if again:
                    known = {row[:3] for row in sampled}
                    listed = rows(connection, _select_again(column), (again,))
                    sampled += [row for row in listed if row[:3] not in known]
                return sampled
            except psycopg2.errors.QueryCanceled as error:
                message = f"Postgres gave no rows of {column.table} to decode within {SECONDS} seconds."
                raise LegacyUnavailable(message, hint=_HINT) from error

    def _select(self, column: MappedColumn, size: int) -> str:
        row_key, conditions = f"r.{quoted(column.uuid)}", _conditions(column)
        looked_at = float(max(SPARE * self._sample, SMALL))
        if len(self._shards) < self._shards_total:
            looked_at = min(looked_at * self._shards_total / len(self._shards), LOOKED_AT_MAX)
            shard = shard_sql(row_key, self._shards_total)
            conditions.append(f"{shard} BETWEEN {self._shards.start} AND {self._shards.stop - 1}")
        share = 100.0 if size < SMALL else min(100.0, 100.0 * looked_at / size)
        return (
            f"SELECT {select_of(column)} FROM {column.table.sql} AS r TABLESAMPLE SYSTEM ({share:.6f}) "
            f"WHERE {' AND '.join(conditions)} ORDER BY pg_catalog.random() LIMIT {self._sample}"
        )


def _select_again(column: MappedColumn) -> str:
    statement = f"SELECT {select_of(column)} FROM {column.table.sql} AS r WHERE {' AND '.join(_conditions(column))}"
    return f"{statement.replace('%', '%%')} AND r.{quoted(column.uuid).replace('%', '%%')} = ANY (%s::uuid[])"


def _conditions(column: MappedColumn) -> list[str]:
    """Whether a row says which cell it is."""
    names = (column.uuid, column.ref_key.column, column.ref_key.version)
    return [f"r.{quoted(name)} IS NOT NULL" for name in names if name]
