"""`ColumnPlaces`: where the cells of each column of a layout are, and the statements that read them, prepared once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tripstore.backends.postgres.cells.read.history import History
from tripstore.backends.postgres.cells.rows import ColumnRows, LegacyIds, text
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout
from tripstore.backends.postgres.wire.wire import Prepared


class ColumnPlaces:
    """Where the cells of each column are, and the statements that read them."""

    def __init__(self, layout: Layout) -> None:
        self.columns = {name: ColumnRows(column) for name, column in layout.columns.items()}
        self.legacy_ids = LegacyIds(layout)
        self.mapped: Mapping[str, ColumnRows | LegacyIds] = {**self.columns, LEGACY_ID: self.legacy_ids}
        parent = History(self.columns[layout.parent.name], None)
        self.histories = {column.name: History(self.columns[column.name], parent) for column in layout.children}
        self.histories[layout.parent.name] = parent
        self.latest = {name: Prepared("uuid", rows.latest("$1")) for name, rows in self.mapped.items()}
        #: The row of the parent column is its latest cell, if it is there: so much is planned and started faster.
        self.current = {layout.parent.name: Prepared("uuid", self.columns[layout.parent.name].latest_row("$1"))}
        self.at = {name: Prepared("uuid, bigint", rows.at("$1", "$2")) for name, rows in self.columns.items()}
        self.row = Prepared("uuid", self.of_row("$1", None))

    def of_row(self, key: str, columns: Collection[str] | None) -> str:
        """A SELECT of the latest cells of a row, with the column name first."""
        parts = [
            f"SELECT {rows.name}::text, latest.* FROM ({rows.latest(key)}) AS latest"
            for name, rows in self.mapped.items()
            if columns is None or name in columns
        ]
        free = f"NOT c.column_name = ANY ({_array(map(text, self.mapped))})"
        if columns is not None:
            free = f"c.column_name = ANY ({_array(text(name) for name in columns if name not in self.mapped)})"
        parts.append(
            "SELECT column_name, ref_key, NULL::int, NULL::text, body, created_at FROM ("
            "SELECT DISTINCT ON (c.column_name) c.column_name, c.ref_key, c.body, c.created_at FROM tripstore.cell AS c"
            f" WHERE c.row_key = {key} AND {free} ORDER BY c.column_name, c.ref_key DESC) AS free"
        )
        return " UNION ALL ".join(parts)


def _array(texts: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(texts)}]::text[]"
