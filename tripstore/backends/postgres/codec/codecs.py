"""`Codecs`: the codec of each mapped column, of the present layout and of those that older changes were written by."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from schemaless_core.canonical import Json
from tripstore.backends.postgres.cells.rows import CURRENT
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.wire import LegacyConnection

_LAYOUT = "SELECT document FROM tripstore.layout WHERE number = %s"


class Codecs:
    """Threads share it: what two of them make at once is the same."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: The pairs of the present layout.
        self.lookups = LookupCache(layout)
        self._by_layout = {CURRENT: _of_layout(layout, self.lookups)}

    def of(self, connection: LegacyConnection, layout: int, column_name: str) -> ColumnCodec:
        """The codec for rows of a column that a layout of this number wrote."""
        columns = self._columns(connection, layout)
        if column_name not in columns:
            raise InvalidLayout(
                f"Layout {layout} wrote no {column_name}.", hint="Do not change rows of tripstore.layout by hand."
            )
        return columns[column_name].codec

    def prefetch(self, connection: LegacyConnection, rows: Iterable[tuple[int, str, str]]) -> None:
        """Look up, all at once, what these rows (layout, column name, row) point to."""
        by_codec: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for layout, column_name, row in rows:
            by_codec[layout, column_name].append(row)
        for (layout, column_name), texts in by_codec.items():
            self.prefetch_of(connection, layout, column_name, texts)

    def prefetch_of(self, connection: LegacyConnection, layout: int, column_name: str, rows: Sequence[str]) -> None:
        """The same for rows of one column."""
        column = self._columns(connection, layout).get(column_name)
        if column is not None and (wanted := column.codec.missing(rows)):
            column.lookups.fill(wanted, connection.rows)

    def prefetch_bodies(self, connection: LegacyConnection, column_name: str, bodies: Sequence[Json]) -> None:
        """The same for bodies of the present layout."""
        column = self._by_layout[CURRENT][column_name]
        if wanted := column.codec.missing_of_bodies(bodies):
            column.lookups.fill(wanted, connection.rows)

    def _columns(self, connection: LegacyConnection, layout: int) -> dict[str, _Column]:
        if layout not in self._by_layout:
            found = connection.rows(_LAYOUT, (layout,))
            if not found:
                raise InvalidLayout(
                    f"Nobody knows layout {layout} any more.", hint="Rows of tripstore.layout are for ever."
                )
            written_by = load_layout(json.loads(found[0][0]), self._layout.datastore)
            self._by_layout[layout] = _of_layout(written_by, LookupCache(written_by))
        return self._by_layout[layout]


class _Column:
    def __init__(self, codec: ColumnCodec, lookups: LookupCache) -> None:
        self.codec = codec
        self.lookups = lookups


def _of_layout(layout: Layout, lookups: LookupCache) -> dict[str, _Column]:
    return {name: _Column(ColumnCodec(column, lookups), lookups) for name, column in layout.columns.items()}
