"""`ColumnarCodec`: many rows of one mapped column to canonical bytes, field by field instead of row by row.

The same bytes as `ColumnCodec` gives for each row, and its word is the last: when any value of a batch is refused, all
its rows are read by it, one by one. Texts come as COPY writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from schemaless_core import Json
from schemaless_core.canonical import MAX_DEPTH
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.copy_text import NULL, unescaped
from tripstore.backends.postgres.codec.lookups import LookupCache, RowsOf, Wanted
from tripstore.backends.postgres.codec.refused import Refused
from tripstore.backends.postgres.codec.values import value_of
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import Field, FieldType, MappedColumn

#: Texts of a field, as COPY writes them.
Texts = Sequence[str]
#: Reads the texts of one field; a value may be `UNSET`: the field is missing.
Reader = Callable[[Texts], list[Any]]

# Fields stand in the order of their names; what is nested is sorted by the encoder.
_encode = msgspec.json.Encoder(order="deterministic").encode
#: Values that come again and again: each is read once per batch.
_REPEATED = frozenset({FieldType.INT, FieldType.DECIMAL, FieldType.BOOLEAN, FieldType.DATE, FieldType.ARRAY})
#: Texts of them never need an escape in COPY.
_PLAIN = frozenset(
    {
        FieldType.UUID,
        FieldType.INT,
        FieldType.FLOAT,
        FieldType.DECIMAL,
        FieldType.BOOLEAN,
        FieldType.DATETIME,
        FieldType.DATE,
    }
)


class ColumnarCodec:
    """The codec of one mapped column for batches. Threads may share it, as the other."""

    def __init__(self, column: MappedColumn, codec: ColumnCodec, lookups: LookupCache) -> None:
        self.column = column
        self._codec = codec
        self._places = {name: n for n, name in enumerate(column.captured)}
        self._readers: list[tuple[int, Reader]] = []
        self._row = _struct_of(column)
        for field in sorted(column.fields, key=lambda field: field.name):
            self._readers.append((self._places[field.column], _reader_of(field, lookups)))

    def canonical(self, texts: Sequence[Texts], rows_of: RowsOf) -> list[bytes | UnreadableRow]:
        """The bodies of rows; `texts` has those of each captured column, in the layout's order.

        Pairs that the cache does not have, or not any more, are asked for by `rows_of`.
        """
        if self._row is not None and (self.column.extra is None or _is_null(texts[self._places[self.column.extra]])):
            try:
                values = [read(texts[place]) for place, read in self._readers]
                return list(map(_encode, map(self._row, *values)))
            except (Refused, msgspec.MsgspecError, UnicodeEncodeError):
                pass  # the careful reading says whose value that was, and why
        asking = self._codec.asking(rows_of)
        return [self._canonical(asking, row) for row in zip(*texts, strict=True)]

    def wanted(self, texts: Sequence[Texts]) -> Wanted:
        """What these rows point to."""
        wanted = Wanted()
        for field in self.column.fields:
            if field.lookup is not None:
                keys = wanted.keys.setdefault(field.lookup, set())
                keys.update(texts[self._places[field.column]])
                keys.discard(NULL)
        return wanted

    def _canonical(self, codec: ColumnCodec, row: Texts) -> bytes | UnreadableRow:
        texts = {name: unescaped(text) for name, text in zip(self.column.captured, row, strict=True)}
        try:
            return codec.canonical_of_texts(texts)
        except UnreadableRow as error:
            return error


def _struct_of(column: MappedColumn) -> Callable[..., object] | None:
    """What a row's values are encoded as; None: its fields have names that a struct cannot have."""
    names = sorted(field.name for field in column.fields)
    if not names:
        return None
    fields = [(f"field_{n}", Any, msgspec.UNSET) for n in range(len(names))]
    rename = {f"field_{n}": name for n, name in enumerate(names)}
    try:
        made = msgspec.defstruct("Row", cast(Any, fields), rename=rename, gc=False)
    except (ValueError, TypeError):
        return None
    return cast(Callable[..., object], made)


def _is_null(texts: Texts) -> bool:
    return all(text == NULL for text in texts)


def _reader_of(field: Field, lookups: LookupCache) -> Reader:
    null: Any = None if field.keeps_null else msgspec.UNSET
    if field.lookup is not None:
        return _looked_up(field, lookups, null)
    if field.kind is FieldType.STRING:
        return lambda texts: _strings(texts, null)
    read: Callable[[str], Json] = value_of(field).read
    if field.kind is FieldType.JSON and field.keeps_null:
        read = _without_null(read)
    if FieldType.JSON in (field.kind, field.items):
        read = _shallow(read)
    if field.kind in _REPEATED:
        return lambda texts: _repeated(texts, read, null)
    if field.kind in _PLAIN:
        return lambda texts: [null if text == NULL else read(text) for text in texts]
    return lambda texts: [null if text == NULL else read(cast(str, unescaped(text))) for text in texts]


def _strings(texts: Texts, null: Any) -> list[Any]:
    return [text if "\\" not in text else null if text == NULL else unescaped(text) for text in texts]


def _repeated(texts: Texts, read: Callable[[str], Json], null: Any) -> list[Any]:
    known: dict[str, Any] = {text: read(cast(str, unescaped(text))) for text in set(texts) if text != NULL}
    known[NULL] = null
    return [known[text] for text in texts]


def _looked_up(field: Field, lookups: LookupCache, null: Any) -> Reader:
    assert field.lookup is not None
    pairs, read = lookups.of(field.lookup), value_of(field).read

    def value(text: str) -> Json:
        uuid = pairs.uuid_of(text)
        if uuid is None:
            raise Refused("its pair is not known")
        return read(uuid)

    return lambda texts: _repeated(texts, value, null)


def _shallow(read: Callable[[str], Json]) -> Callable[[str], Json]:
    """What may be nested too deep for a body is for the careful reading."""

    def value(text: str) -> Json:
        if len(text) >= 2 * (MAX_DEPTH - 1) and text.count("[") + text.count("{") >= MAX_DEPTH - 1:
            raise Refused("it may be nested too deep")
        return read(text)

    return value


def _without_null(read: Callable[[str], Json]) -> Callable[[str], Json]:
    def value(text: str) -> Json:
        found = read(text)
        if found is None:
            raise Refused("it is JSON's null, which cannot be told from NULL here")
        return found

    return value
