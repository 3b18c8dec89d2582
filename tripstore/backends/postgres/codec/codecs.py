"""`Codecs`: the codec of each mapped column, of the present layout and of those that older changes were written by."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from schemaless_core.cell.canonical import Json
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache, WantedPairs
from tripstore.backends.postgres.errors import InvalidLayout, UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import CURRENT, Layout
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

    def of(self, connection: LegacyConnection, layout: int, column_name: str) -> AskingCodec:
        """The codec for rows of a column that a layout of this number wrote."""
        return AskingCodec(connection, self._column(connection, layout, column_name))

    def prefetch(self, connection: LegacyConnection, rows: Iterable[tuple[int, str, str]]) -> None:
        """Look up, all at once, what these rows (layout, column name, row) point to."""
        by_codec: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for layout, column_name, row in rows:
            by_codec[layout, column_name].append(row)
        for (layout, column_name), texts in by_codec.items():
            self.prefetch_of(connection, layout, column_name, texts)

    def prefetch_of(self, connection: LegacyConnection, layout: int, column_name: str, rows: Sequence[str]) -> None:
        """The same for rows of one column."""
        column = self._column(connection, layout, column_name)
        column.learn(connection, column.codec.missing(rows))

    def forget_keys(self, column_name: str, body: Json) -> bool:
        """Forget which rows a body points to: they may be gone, and others have their UUIDs. Whether any was known."""
        column = self._by_layout[CURRENT][column_name]
        return column.lookups.forget_keys(column.codec.values(body))

    def _column(self, connection: LegacyConnection, layout: int, column_name: str) -> _Column:
        columns = self._columns(connection, layout)
        if column_name not in columns:
            raise InvalidLayout(
                f"Layout {layout} wrote no {column_name}.", hint="Do not change rows of tripstore.layout by hand."
            )
        return columns[column_name]

    def _columns(self, connection: LegacyConnection, layout: int) -> dict[str, _Column]:
        if layout not in self._by_layout:
            found = connection.rows(_LAYOUT, (layout,))
            if not found:
                raise InvalidLayout(
                    f"Layout {layout} is not known any more.", hint="Rows of tripstore.layout are for ever."
                )
            written_by = load_layout(json.loads(found[0][0]), self._layout.datastore)
            self._by_layout[layout] = _of_layout(written_by, LookupCache(written_by))
        return self._by_layout[layout]


class AskingCodec:
    """The codec of a column on a connection: what its cache does not know is asked for there.

    First it tries with what is known, so that a row whose pairs are known costs nothing more.
    """

    def __init__(self, connection: LegacyConnection, column: _Column) -> None:
        self._connection = connection
        self._column = column
        self._codec = column.codec

    def body(self, row: str) -> dict[str, Json]:
        """The body of a row, or `UnreadableRow`."""
        try:
            return self._codec.body(row)
        except UnreadableRow:  # perhaps for want of a pair that was never asked for, or that there was no room for
            return self._asking(self._codec.missing((row,))).body(row)

    def canonical(self, row: str) -> bytes:
        """The canonical bytes of a row's body, or `UnreadableRow`."""
        try:
            return self._codec.canonical(row)
        except UnreadableRow:
            return self._asking(self._codec.missing((row,))).canonical(row)

    def row(self, body: Json) -> dict[str, str | None]:
        """Texts of all captured columns for a body, or `Unrepresentable`."""
        try:
            return self._codec.row(body)
        except Unrepresentable:
            return self._asking(self._codec.missing_of_bodies((body,))).row(body)

    def _asking(self, wanted: WantedPairs) -> ColumnCodec:
        self._column.learn(self._connection, wanted)
        return self._codec.asking(self._connection.rows)


class _Column:
    def __init__(self, codec: ColumnCodec, lookups: LookupCache) -> None:
        self.codec = codec
        self.lookups = lookups

    def learn(self, connection: LegacyConnection, wanted: WantedPairs) -> None:
        """Keep pairs, unless a transaction is open: a trigger of the company may have inserted rows that go with it."""
        if wanted and connection.is_idle:
            self.lookups.fill(wanted, connection.rows)


def _of_layout(layout: Layout, lookups: LookupCache) -> dict[str, _Column]:
    return {name: _Column(ColumnCodec(column, lookups), lookups) for name, column in layout.columns.items()}
