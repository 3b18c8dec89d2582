"""`ColumnCodec`: rows of the company's tables to bodies of cells, and back. Nothing is changed on the way.

A row is the text that `MappedColumn.row_sql` renders: a JSON object of the captured columns, each as Postgres writes
its value under `connections.RENDERING`, or null. What a body becomes is the same: texts by physical column, which SQL
casts to the columns' types. Only Postgres knows precisions, lengths and labels, and a cast may round or cut: a put
compares the row that came of it, and takes it back when it is another.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import msgspec

from schemaless_core import InvalidCell, Json, canonical_bytes
from tripstore.backends.postgres.codec.lookups import LookupCache, RowsOf, WantedPairs
from tripstore.backends.postgres.codec.nested import NestedDocument
from tripstore.backends.postgres.codec.refused import Refused, joined, other_type
from tripstore.backends.postgres.codec.values import value_of
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import Field, FieldType, MappedColumn

#: The canonical body of a tombstone.
TOMBSTONE = canonical_bytes(None)

_NO_FIELD = "it is missing; by the layout NULL is null"
_NO_NULL = "it is null; by the layout NULL is a missing field"
_EXTRA = NestedDocument()
_texts_of = msgspec.json.Decoder(dict[str, str | None]).decode


class ColumnCodec:
    """The codec of one mapped column. Has no state but the cache's; threads may share it."""

    def __init__(self, column: MappedColumn, lookups: LookupCache) -> None:
        self.column = column
        self._lookups = lookups
        self._captured = frozenset(column.captured)
        self._arrange(tuple(_Mapped(field, lookups) for field in column.fields))

    def asking(self, rows_of: RowsOf) -> ColumnCodec:
        """The same codec, which asks for pairs that its cache does not have."""
        if not self._looked_up:
            return self
        other = copy.copy(self)
        lookups = self._lookups.asking(rows_of)
        other._arrange(tuple(each if each.lookup is None else _Mapped(each.field, lookups) for each in self._fields))
        return other

    def _arrange(self, fields: tuple[_Mapped, ...]) -> None:
        self._fields = fields
        self._looked_up = tuple(mapped for mapped in fields if mapped.lookup is not None)
        # Every row of a migration passes here: what the loop needs lies ready.
        self._reads = tuple((each.name, each.column, each.read, each.keeps_null) for each in fields)
        self._writes = tuple((each.name, each.column, each.write, each.keeps_null, each.has_null) for each in fields)

    def body(self, row: str) -> dict[str, Json]:
        """The body of a row, or `UnreadableRow` when there is none."""
        return self.body_of_texts(self._texts(row))

    def body_of_texts(self, texts: Mapping[str, str | None]) -> dict[str, Json]:
        """The same of texts by physical column, None for NULL."""
        body: dict[str, Json] = {}
        name = ""
        try:
            for name, column, read, keeps_null in self._reads:
                text = texts[column]
                if text is not None:
                    body[name] = read(text)
                elif keeps_null:
                    body[name] = None
        except Refused as refused:
            raise UnreadableRow(joined(name) + refused.path, refused.reason) from None
        if self.column.extra is not None and (text := texts[self.column.extra]) is not None:
            self._add_extra(body, text)
        return body

    def canonical(self, row: str) -> bytes:
        """The canonical bytes of a row's body, or `UnreadableRow`."""
        return self.canonical_of_texts(self._texts(row))

    def canonical_of_texts(self, texts: Mapping[str, str | None]) -> bytes:
        """The same of texts by physical column, None for NULL."""
        body = self.body_of_texts(texts)
        try:
            return canonical_bytes(body)
        except InvalidCell as error:  # nested so deep that it fits into a column, but not into a body
            raise UnreadableRow(error.path.removeprefix("$").removeprefix("."), error.reason) from None

    def row(self, body: Json) -> dict[str, str | None]:
        """Texts of all captured columns for a body that `canonical_bytes` admits, or `Unrepresentable`."""
        if type(body) is not dict:
            raise Unrepresentable("", other_type(body, "an object").reason)
        texts: dict[str, str | None] = {}
        name = ""
        try:
            for name, column, write, keeps_null, has_null in self._writes:
                value = body.get(name)
                if value is not None or (has_null and name in body):
                    texts[column] = write(value)
                elif (name in body) is keeps_null:
                    texts[column] = None
                else:
                    raise Refused(_NO_NULL if name in body else _NO_FIELD)
        except Refused as refused:
            raise Unrepresentable(joined(name) + refused.path, refused.reason) from None
        known = self.column.fields_by_name
        rest = {} if body.keys() <= known.keys() else {key: body[key] for key in body if key not in known}
        if self.column.extra is not None:
            texts[self.column.extra] = self._extra_text(rest)
        elif rest:
            hint = "Map it in the layout, or give the column an extra."
            raise Unrepresentable(joined(min(rest)), "the layout has no such field, and no extra", hint=hint)
        return texts

    def missing(self, rows: Iterable[str]) -> WantedPairs:
        """The looked-up pairs that these rows need and the cache does not have: `LookupCache.fill` asks for them."""
        wanted = WantedPairs()
        for row in rows if self._looked_up else ():
            texts = self._texts(row)
            for mapped in self._looked_up:
                mapped.want_key(texts[mapped.column], wanted)
        return wanted

    def missing_of_bodies(self, bodies: Iterable[Json]) -> WantedPairs:
        """The same for bodies that are to become rows."""
        wanted = WantedPairs()
        for body in bodies if self._looked_up else ():
            if isinstance(body, dict):
                for mapped in self._looked_up:
                    mapped.want_value(body, wanted)
        return wanted

    def values(self, body: Json) -> WantedPairs:
        """All that a body points to."""
        wanted = WantedPairs()
        if isinstance(body, dict):
            for mapped in self._looked_up:
                mapped.want_value(body, wanted, known_too=True)
        return wanted

    def _texts(self, row: str) -> Mapping[str, str | None]:
        try:
            texts = _texts_of(row)
        except msgspec.MsgspecError as error:
            raise self._strange_row(str(error)) from None
        if not texts.keys() >= self._captured:
            raise self._strange_row("it lacks " + ", ".join(sorted(self._captured - texts.keys())))
        return texts

    def _strange_row(self, why: str) -> UnreadableRow:
        hint = "Was it captured by another layout?"
        return UnreadableRow(str(self.column.table), f"the row is none of this layout's: {why}", hint=hint)

    def _add_extra(self, body: dict[str, Json], text: str) -> None:
        extra = str(self.column.extra)
        try:
            found = _EXTRA.read(text)
            if type(found) is not dict:
                raise other_type(found, "an object")
        except Refused as refused:
            raise UnreadableRow(joined(extra) + refused.path, refused.reason) from None
        for name in found:
            if name in self.column.fields_by_name:
                raise UnreadableRow(joined(extra, name), "a field of the layout has this name")
        body.update(found)

    def _extra_text(self, rest: dict[str, Json]) -> str | None:
        try:
            return _EXTRA.write(rest) if rest else None
        except Refused as refused:
            raise Unrepresentable(refused.path.removeprefix("."), refused.reason) from None


class _Mapped:
    """One field: its value, and what that is looked up as."""

    def __init__(self, field: Field, lookups: LookupCache) -> None:
        self.field = field
        self.name = field.name
        self.column = field.column
        self.keeps_null = field.keeps_null
        self.lookup = field.lookup
        self._pairs = None if field.lookup is None else lookups.of(field.lookup)
        self._value = value_of(field)
        # JSON's null is a value of such a column. Where NULL is kept as null, only one of the two can be.
        self.has_null = field.kind is FieldType.JSON and not field.keeps_null
        self.read = self._value.read if self.lookup is None else self._read_key
        self.write = self._value.write if self.lookup is None else self._write_key
        if field.kind is FieldType.JSON and field.keeps_null:
            self.read = self._read_no_null

    def want_key(self, key: str | None, wanted: WantedPairs) -> None:
        if self.lookup is not None and self._pairs is not None and key is not None and not self._pairs.knows_key(key):
            wanted.want_key(self.lookup, key)

    def want_value(self, body: Mapping[str, Json], wanted: WantedPairs, *, known_too: bool = False) -> None:
        try:
            text = self._value.write(body[self.name])
        except (KeyError, Refused):
            return  # `row` says so
        if self.lookup is None or self._pairs is None:
            return
        if known_too or not self._pairs.knows_uuid(text):
            wanted.want_value(self.lookup, text)

    def _read_key(self, key: str) -> Json:
        assert self.lookup is not None
        assert self._pairs is not None
        text = self._pairs.uuid_of(key)
        if text is None:
            raise Refused(f"table {self.lookup.table} has no row of this {self.lookup.key}")
        return self._value.read(text)

    def _write_key(self, value: Json) -> str:
        text = self._value.write(value)
        assert self.lookup is not None
        assert self._pairs is not None
        key = self._pairs.key_of(text)
        if key is None:
            raise Refused(f"table {self.lookup.table} has no row of this {self.lookup.value}")
        return key

    def _read_no_null(self, text: str) -> Json:
        value = self._value.read(text)
        if value is None:
            raise Refused("it is JSON's null, which cannot be told from NULL here")
        return value
