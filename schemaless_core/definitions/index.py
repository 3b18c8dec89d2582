"""What an index is made of: its name, its source columns and their fields, read from the YAML of the article.

The first field of the first column is the shard field: a row has an entry exactly when it is known. Field names are
those of the bodies' own top-level keys, so each is unique in its index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell, check_column_name
from schemaless_core.definitions.documents import DocumentPlace, meant, read_documents
from schemaless_core.definitions.values import BadValue, IndexFieldType, parse
from schemaless_core.errors import InvalidCell, InvalidRequest, shown
from schemaless_core.urls import shown_setting

#: A table of so many texts still fits into a row of MySQL.
FIELDS_MAX = 64

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}", re.ASCII)
_NAME_HINT = "Use up to 48 lower-case letters, digits and _, and no digit first, like driver_partner_index."
_QUOTES = "Write it in quotes: without them YAML takes it for something else."
_TYPES = {kind.value.lower(): kind for kind in IndexFieldType}
_KEYS = ("table", "datastore", "column_defs")
_FIELDS = "fields: [{field: city_uuid, type: UUID}]"
_COLUMNS = f"column_defs: [{{column_key: BASE, {_FIELDS}}}]"


@dataclass(frozen=True, slots=True)
class IndexField:
    """A top-level key of a column's bodies, and the type of its values."""

    name: str
    kind: IndexFieldType


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column whose latest cell gives an entry some of its fields."""

    name: str
    fields: tuple[IndexField, ...]


class FieldComplaint(NamedTuple):
    """Why a field is missing from an entry although its cell holds something there."""

    field: str
    column_name: str
    ref_key: int
    reason: str


class FieldsOfRow(NamedTuple):
    """One value per field of the index, None where it is missing; the shard field's comes first."""

    values: tuple[Scalar | None, ...]
    complaints: tuple[FieldComplaint, ...]


@dataclass(frozen=True)
class IndexDefinition:
    """One version of an index."""

    name: str
    datastore: str
    columns: tuple[SourceColumn, ...]

    @cached_property
    def fields(self) -> tuple[IndexField, ...]:
        return tuple(field for column in self.columns for field in column.fields)

    @property
    def shard_field(self) -> IndexField:
        return self.columns[0].fields[0]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def digest(self) -> str:
        """Equal for equal definitions, wherever they were read."""
        return sha256(canonical_bytes(self.to_document())).hexdigest()[:16]

    def field(self, name: str) -> IndexField:
        """Return the field of this name, or raise `InvalidRequest` with the one that may have been meant."""
        return self.fields[self.position_of(name)]

    def position_of(self, name: str) -> int:
        """Where the field of this name stands among all fields."""
        if name not in self._names:
            hint = meant(name, self._names, "Fields")
            raise InvalidRequest(f"Index {self.name} has no field {shown(name)}.", hint=hint)
        return self._names.index(name)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def fields_of(self, cells: Mapping[str, Cell | None]) -> FieldsOfRow:
        """Return the fields of a row from the latest cells of the source columns."""
        values: list[Scalar | None] = []
        complaints: list[FieldComplaint] = []
        for column in self.columns:
            cell = cells.get(column.name)
            for field, found in zip(column.fields, _found_in(cell, column.fields), strict=True):
                if isinstance(found, BadValue):
                    assert cell is not None  # a cell that is not there is no bad value
                    complaints.append(FieldComplaint(field.name, column.name, cell.ref_key, found.reason))
                values.append(None if isinstance(found, BadValue) else found)
        return FieldsOfRow(tuple(values), tuple(complaints))

    def shard_value_of(self, cell: Cell | None) -> Scalar | None:
        """The shard value that a cell of the first column gives its row; None if it gives none."""
        (found,) = _found_in(cell, self.columns[0].fields[:1])
        return None if isinstance(found, BadValue) else found

    def to_document(self) -> dict[str, Json]:
        """The definition in the shape of the article's YAML."""
        columns: list[Json] = [
            {
                "column_key": column.name,
                "fields": [{"field": field.name, "type": field.kind.value} for field in column.fields],
            }
            for column in self.columns
        ]
        return {"table": self.name, "datastore": self.datastore, "column_defs": columns}

    @classmethod
    def from_document(cls, document: object, where: str, datastore: str | None = None) -> IndexDefinition:
        """Check a document in full. When the datastore is known, the document may leave it out, but name no other."""
        place = DocumentPlace(where)
        entry = place.mapping(document, _KEYS, ("table", "column_defs") if datastore else _KEYS)
        columns = place.under("column_defs")
        definition = cls(
            name=_name(entry["table"], place.under("table"), "an index"),
            datastore=_datastore(entry.get("datastore", datastore), datastore, place.under("datastore")),
            columns=tuple(_column(*column) for column in columns.elements(entry["column_defs"], _COLUMNS)),
        )
        _refuse_twice(definition.column_names, columns, "column", "List its fields under one column_key.")
        names = [field.name for field in definition.fields]
        _refuse_twice(names, columns, "field", "Leave one out: a field belongs to one column of an index.")
        if len(names) > FIELDS_MAX:
            hint = "Ask for cells with columns= instead of denormalising all they hold."
            raise columns.complaint(f"has {len(names)} fields, {FIELDS_MAX} are allowed", hint)
        return definition


def load_definitions(setting: object, folder: Path, datastore: str) -> tuple[IndexDefinition, ...]:
    """Return the definitions that `indexes:` of a configuration in `folder` names, in the order of its files."""
    sources: dict[str, str] = {}
    definitions = []
    for source, document in read_documents(setting, folder):
        definition = IndexDefinition.from_document(document, source, datastore)
        if definition.name in sources:
            reason = f"{definition.name!r} is the index of {sources[definition.name]} too"
            raise DocumentPlace(source, "table").complaint(reason, "Give each index a name of its own.")
        sources[definition.name] = source
        definitions.append(definition)
    return tuple(definitions)


def _found_in(cell: Cell | None, fields: tuple[IndexField, ...]) -> list[Scalar | BadValue | None]:
    """What the latest cell of a column holds for each field; None where it holds nothing."""
    if cell is None or cell.body is None:
        return [None] * len(fields)
    body = cell.body
    if not isinstance(body, dict):
        wrong: list[Scalar | BadValue | None] = [BadValue(f"the body is a {type(body).__name__}, not an object")]
        return wrong + [None] * (len(fields) - 1)  # one complaint says it for all
    return [None if (value := body.get(field.name)) is None else parse(field.kind, value) for field in fields]


def _column(value: object, place: DocumentPlace) -> SourceColumn:
    keys = ("column_key", "fields")
    entry = place.mapping(value, keys, keys)
    name = entry["column_key"]
    try:
        check_column_name(name)
    except InvalidCell as refused:
        hint = _QUOTES if type(name) in (bool, int, float) else refused.hint
        raise place.under("column_key").complaint(refused.reason, hint) from None
    fields = place.under("fields").elements(entry["fields"], _FIELDS)
    return SourceColumn(name, tuple(_field(*field) for field in fields))


def _field(value: object, place: DocumentPlace) -> IndexField:
    keys = ("field", "type")
    entry = place.mapping(value, keys, keys)
    return IndexField(_name(entry["field"], place.under("field"), "a field"), _type(entry["type"], place.under("type")))


def _type(value: object, place: DocumentPlace) -> IndexFieldType:
    kind = _TYPES.get(value.lower()) if isinstance(value, str) else None
    if kind is None:
        hint = meant(value, [known.value for known in IndexFieldType], "Types")
        raise place.complaint(f"{shown_setting(value)} is no type", hint)
    return kind


def _name(value: object, place: DocumentPlace, what: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        hint = _QUOTES if type(value) is bool else _NAME_HINT
        raise place.complaint(f"{shown_setting(value)} is no name for {what}", hint)
    return value


def _datastore(value: object, expected: str | None, place: DocumentPlace) -> str:
    if not isinstance(value, str) or not value:
        raise place.complaint(f"{shown_setting(value)} is no datastore name", "Name the index's own, like trips.")
    if expected is not None and value != expected:
        reason = f"{shown_setting(value)} is not the datastore of this configuration, {expected!r}"
        raise place.complaint(reason, f"Write datastore: {expected}, or leave it out.")
    return value


def _refuse_twice(names: Iterable[str], place: DocumentPlace, what: str, hint: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise place.complaint(f"names the {what} {name!r} twice", hint)
        seen.add(name)
