"""`ColumnarCodec`: many rows of one mapped column to canonical bytes, field by field instead of row by row.

The same bytes as `ColumnCodec` gives for each row, and its word is the last: when any value of a batch is refused, all
its rows are read by it, one by one. Texts come as COPY writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from schemaless_core import Json
from schemaless_core.cell.canonical import MAX_DEPTH
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.copy_text import NULL, unescaped
from tripstore.backends.postgres.codec.lookups import LookupCache, RowsOf, WantedPairs
from tripstore.backends.postgres.codec.nested import NestedDocument, plain_values
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
#: Of arrays of them hardly one comes twice.
_UNIQUE = frozenset({FieldType.FLOAT, FieldType.DATETIME, FieldType.UUID, FieldType.BYTES, FieldType.JSON})
#: Texts of one field that are remembered.
KNOWN_MAX = 20_000
#: One that is not plain makes all of its array be read one by one.
DOCUMENTS_PER_ARRAY = 50
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
    """The codec of one mapped column for batches. For one thread at a time: it remembers what it has read."""

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

    def wanted(self, texts: Sequence[Texts]) -> WantedPairs:
        """What these rows point to."""
        wanted = WantedPairs()
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
        return _Repeated(_looked_up(field, lookups), null).read
    if field.kind is FieldType.STRING:
        return lambda texts: [text if "\\" not in text else null if text == NULL else unescaped(text) for text in texts]
    if field.kind is FieldType.JSON:
        return _Documents(null, has_null=not field.keeps_null).read
    read: Callable[[str], Json] = value_of(field).read
    if field.items is FieldType.JSON:
        read = _shallow(read)
    if field.kind in _REPEATED and field.items not in _UNIQUE:
        return _Repeated(read, null).read
    if field.kind in _PLAIN:
        return lambda texts: [null if text == NULL else read(text) for text in texts]
    return lambda texts: [null if text == NULL else read(cast(str, unescaped(text))) for text in texts]


def _looked_up(field: Field, lookups: LookupCache) -> Callable[[str], Json]:
    assert field.lookup is not None
    pairs, read = lookups.of(field.lookup), value_of(field).read

    def value(text: str) -> Json:
        uuid = pairs.uuid_of(text)
        if uuid is None:
            raise Refused("its pair is not known")
        return read(uuid)

    return value


class _Repeated:
    """A field whose texts come again and again: each is read once, as long as there are not too many."""

    def __init__(self, read: Callable[[str], Json], null: Any) -> None:
        self._read = read
        self._null = null
        self._known: dict[str, Any] = {NULL: null}

    def read(self, texts: Texts) -> list[Any]:
        known = self._known
        try:
            return [known[text] for text in texts]
        except KeyError:
            pass
        if len(known) > KNOWN_MAX:
            known = self._known = {NULL: self._null}
        for text in set(texts) - known.keys():
            known[text] = self._read(cast(str, unescaped(text)))
        return [known[text] for text in texts]


class _Documents:
    """A field of json: as one array of many documents, which costs little more than one of them."""

    def __init__(self, null: Any, *, has_null: bool) -> None:
        self._null = null
        self._document = _shallow(NestedDocument().read if has_null else _without_null(NestedDocument().read))
        self._has_null = has_null

    def read(self, texts: Texts) -> list[Any]:
        written = [text if "\\" not in text else unescaped(text) for text in texts]
        documents = [text for text in written if text is not None]
        values: list[Json] = []
        for first in range(0, len(documents), DOCUMENTS_PER_ARRAY):
            values += self._values(documents[first : first + DOCUMENTS_PER_ARRAY])
        if len(values) == len(texts):
            return values
        found = iter(values)
        return [self._null if text is None else next(found) for text in written]

    def _values(self, documents: list[str]) -> list[Json]:
        if len(max(documents, key=len)) < 2 * (MAX_DEPTH - 1):
            values = plain_values(documents)
            if values is not None and (self._has_null or None not in values):
                return values
        return [self._document(text) for text in documents]


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
