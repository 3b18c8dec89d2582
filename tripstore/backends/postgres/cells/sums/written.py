"""`WrittenRows`: texts that capture keeps of rows, by the layout that wrote them, to canonical bytes, many at once.

The same bytes as `Bodies` gives for each. What is none of a layout's, or is refused, is read by the careful codec row
by row, which says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, cast

import msgspec

from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.copy_text import NULL, escaped
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.wire import LegacyConnection

_LAYOUT = "SELECT document FROM tripstore.layout WHERE number = %s"


class WrittenRows:
    """Rows of one column that one layout wrote. For one thread at a time."""

    def __init__(self, column: MappedColumn, lookups: LookupCache) -> None:
        self._lookups = lookups
        self._codec = ColumnCodec(column, lookups)
        self._columnar = ColumnarCodec(column, self._codec, lookups)
        self._decode, self._getters = _reader_of(column)

    def canonical(self, lent: LegacyConnection, rows: Sequence[str]) -> Sequence[bytes | UnreadableRow]:
        """Their bodies; what they point to is looked up on a connection that is lent."""
        try:
            texts = self._texts(rows)
        except (msgspec.MsgspecError, KeyError):
            return [self._one(lent, row) for row in rows]
        self._lookups.fill(self._columnar.wanted(texts), lent.rows)
        return self._columnar.canonical(texts, lent.rows)

    def _texts(self, rows: Sequence[str]) -> list[list[str]]:
        """By captured column, as COPY would write them."""
        document = "[" + ",".join(rows) + "]"
        found = self._decode(document)
        if "\\" not in document:  # of no other text COPY writes a character another way
            return [[NULL if text is None else text for text in map(get, found)] for get in self._getters]
        return [[NULL if text is None else escaped(text) for text in map(get, found)] for get in self._getters]

    def _one(self, lent: LegacyConnection, row: str) -> bytes | UnreadableRow:
        try:
            return self._codec.asking(lent.rows).canonical(row)
        except UnreadableRow as error:
            return error


class WrittenLayouts:
    """The rows of every layout that ever was in force: of each column a `WrittenRows`, made once."""

    def __init__(self, layout: Layout, lookups: LookupCache) -> None:
        self._layout = layout
        self._present = {name: WrittenRows(column, lookups) for name, column in layout.columns.items()}
        self._known = dict[int, dict[str, WrittenRows]]()

    def of(self, lent: LegacyConnection, number: int, column_name: str) -> WrittenRows | None:
        """None: this layout has no such column, or is not known."""
        if number not in self._known:
            found = lent.rows(_LAYOUT, (number,))
            self._known[number] = self._of_document(found[0][0]) if found else {}
        return self._known[number].get(column_name)

    def _of_document(self, document: str) -> dict[str, WrittenRows]:
        written_by = load_layout(json.loads(document), self._layout.datastore)
        lookups = LookupCache(written_by)
        return {
            name: self._present[name] if self._is_present(column) else WrittenRows(column, lookups)
            for name, column in written_by.columns.items()
        }

    def _is_present(self, column: MappedColumn) -> bool:
        """Whether its texts are read as those of the layout in force."""
        present = self._layout.columns.get(column.name)
        return present is not None and _reading(present) == _reading(column)


def _reading(column: MappedColumn) -> tuple[object, ...]:
    """What decides how texts become a body. A document has the fields in an order of its own."""
    return frozenset(column.fields), column.extra


def _reader_of(column: MappedColumn) -> tuple[Callable[[str], Any], list[Callable[[Any], str | None]]]:
    """Decodes many rows, and says of each captured column how its text is found."""
    fields = [(f"field_{n}", str | None) for n in range(len(column.captured))]
    rename = {f"field_{n}": name for n, name in enumerate(column.captured)}
    try:
        made = msgspec.defstruct("Captured", cast(Any, fields), rename=rename, gc=False)
    except (ValueError, TypeError):  # names that a struct cannot have
        return msgspec.json.Decoder(list[dict[str, str | None]]).decode, list(map(itemgetter, column.captured))
    return msgspec.json.Decoder(list[made]).decode, [attrgetter(name) for name in rename]  # type: ignore[valid-type]  # it is made here
