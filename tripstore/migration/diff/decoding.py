"""`DecoderDiff`: rows taken at random from the tables, decoded in a second way, against the cells of Schemaless.

Beside them those that an earlier sample found wrong: another sample would look elsewhere.

A row says which version it is, and a version never changes: what differs differs for ever. A version that Schemaless
does not have is another comparison's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec
import psycopg2
import psycopg2.errors
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.children import ChildKey, child_of
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.cells.read.scan import shard_sql
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, quoted
from tripstore.backends.postgres.sizes import ABOUT_ROWS
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import translating
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.diff.portions import Portion, counted
from tripstore.engines.validation.diff.suspects import READ_SECONDS
from tripstore.migration.diff.decoder import path_of_difference, ref_key_of, select_of

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
                sampled = self._rows(column, bounds.get(column.name))
                opinions = self._opinions(column, sampled)
                found += [difference for difference in opinions.values() if difference is not None]
                counts[f"{PREFIX}skipped"] += len(sampled) - len(opinions)
                counts[f"{PREFIX}equal"] += sum(difference is None for difference in opinions.values())
        counted(found, counts, PREFIX)
        return Portion("done", True, counts, found)

    def again(self, differences: Collection[Difference]) -> dict[ChildKey, Difference | None]:
        """What it finds now of rows that it read otherwise once; None: it reads what Schemaless has.

        A row says by itself which version that is. Of rows that are gone, and of versions that Schemaless does not
        have, it says nothing.
        """
        found = dict[ChildKey, Difference | None]()
        for column in self._layout.columns.values():
            wanted = {each.key for each in differences if each.column_name == column.name}
            if wanted:
                listed = self._listed(column, sorted({str(key.row_key) for key in wanted}))
                opinions = self._opinions(column, listed)
                found |= {key: seen for key, seen in opinions.items() if key in wanted}
        return found

    def _opinions(self, column: MappedColumn, sampled: Sequence[tuple[Any, ...]]) -> dict[ChildKey, Difference | None]:
        """Of each row whose version Schemaless has, how that differs."""
        keys = [CellKey(UUID(row[0]), column.name, ref_key_of(column, row[1], row[2])) for row in sampled]
        found = dict[ChildKey, Difference | None]()
        for key, row, cell in zip(keys, sampled, self._cells(keys), strict=True):
            if cell is None or (not isinstance(cell, Broken) and cell.body is None):
                continue
            path = BYTES if isinstance(cell, Broken) else path_of_difference(column, row[3:], cell.body)
            ours, child = key.ref_key, child_of(self._layout.child_bits, *key[1:])
            found[ChildKey(key.row_key, column.name, child)] = (
                None
                if path is None
                else Difference(
                    CellClass.DIFFERS, key.row_key, column.name, ours, ours, path, seen_by=SEEN_BY, child=child
                )
            )
        return found

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
        with self._reading(column) as connection:
            ((size,),) = rows(connection, ABOUT_ROWS, (column.table.sql, ROWS_PER_PAGE))
            sampled = rows(connection, self._select(column, size))
            if again:
                known = {row[:3] for row in sampled}
                listed = rows(connection, _select_again(column), (again,))
                sampled += [row for row in listed if row[:3] not in known]
            return sampled

    def _listed(self, column: MappedColumn, row_keys: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        with self._reading(column) as connection:
            return rows(connection, _select_again(column), (row_keys,))

    @contextmanager
    def _reading(self, column: MappedColumn) -> Iterator[Connection]:
        timeout = str(SECONDS * 1000)
        with translating(), connected(self._database.url, "diff", statement_timeout=timeout) as connection:
            try:
                yield connection
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
