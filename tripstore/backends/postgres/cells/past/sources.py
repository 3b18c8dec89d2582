"""Where the past stands: every mapped table, tombs, and cells of our own, as SELECTs that COPY may run.

Every row that is in a table now is a cell, of child tables all of them: the newest is the column's latest, the others
are what came before. Conditions are on the row key; the reader adds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from tripstore.backends.postgres.cells.rows import text
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, MappedColumn, quoted


class PastSource(NamedTuple):
    """One table, or one of ours."""

    #: With its alias, as it stands behind FROM.
    table: str
    #: The row key.
    key: str
    #: Behind SELECT.
    select: str
    #: Which rows beside their keys.
    where: str = "true"


class TableSource(NamedTuple):
    """A mapped table. Its SELECT has row key, ref key, the legacy id (of the parent), then the captured columns."""

    source: PastSource
    column: MappedColumn
    has_id: bool


class PastSources(NamedTuple):
    """All places that a selection of columns touches."""

    #: The table that decides which rows there are; its column may not be among those selected.
    parent: PastSource
    tables: tuple[TableSource, ...]
    #: Row key, column name, ref key.
    tombs: PastSource
    #: Row key, column name, ref key, body.
    cells: PastSource

    def ours(self) -> PastSources:
        """What is in no mapped table: tombs, and cells of our own, which decide where a chunk ends."""
        return self._replace(parent=self.cells, tables=())

    def of_leaf(self, table: str, leaf: str) -> tuple[TableSource, ...]:
        """All columns of one mapped table, as they stand in its file, or in that of one partition."""
        return tuple(
            each._replace(source=each.source._replace(table=f"ONLY {leaf} AS r"))
            for each in self.tables
            if each.column.table.sql == table
        )

    def in_leaf(self, table: str, leaf: str) -> PastSources:
        """The same of one leaf alone, whose own row keys decide which rows there are."""
        tables = self.of_leaf(table, leaf)
        return self._replace(parent=tables[0].source, tables=tables)

    def others(self) -> Iterator[PastSource]:
        """All but the parent's table."""
        yield from (table.source for table in self.tables if table.column.is_child)
        yield from (self.tombs, self.cells)


def past_sources(layout: Layout, columns: Collection[str] | None) -> PastSources:
    """The places of these columns, None: of all; free ones are among our own cells."""
    parent = layout.parent
    with_ids = columns is None or LEGACY_ID in columns
    tables = []
    for column in layout.columns.values():
        has_id = with_ids and column is parent
        if columns is None or column.name in columns or has_id:
            tables.append(TableSource(_of_table(layout, column, has_id), column, has_id))
    named = "true"
    if columns is not None:
        named = f"c.column_name = ANY (ARRAY[{', '.join(map(text, columns))}]::pg_catalog.text[])"
    return PastSources(
        PastSource(f"{parent.table.sql} AS t", f"t.{quoted(parent.uuid)}", ""),
        tuple(tables),
        PastSource("tripstore.tomb AS c", "c.row_key", "c.row_key, c.column_name, c.ref_key", named),
        PastSource("tripstore.cell AS c", "c.row_key", "c.row_key, c.column_name, c.ref_key, c.body", named),
    )


def _of_table(layout: Layout, column: MappedColumn, has_id: bool) -> PastSource:
    key = f"r.{quoted(column.uuid)}"
    number = [f"r.{quoted(layout.row_key.id)}"] if has_id else []
    values = [f"r.{quoted(name)}::pg_catalog.text" for name in column.captured]
    return PastSource(f"{column.table.sql} AS r", key, ", ".join([key, column.ref_key_sql("r"), *number, *values]))
