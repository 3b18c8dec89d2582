"""YAML, or a mapping of the same shape, to a `Layout`: everything that can be checked without a database.

Every complaint names the key, the value and a way out. Whether tables and columns exist is the business of `check`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from schemaless_core.definitions.documents import DocumentPlace
from schemaless_core.errors import InvalidConfig
from schemaless_core.urls import shown_setting
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    DeletePolicy,
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
    TombstonePolicy,
)
from tripstore.backends.postgres.layout.reading_names import (
    choice,
    column_name,
    field_name,
    named,
    optional_name,
    physical_name,
    table_name,
)
from tripstore.backends.postgres.layout.strict_yaml import read_yaml

#: Where a layout without a file stands.
_SETTING = "legacy.layout"
_KEYS = ("datastore", "row_key", "columns")
_ROW_KEY = ("table", "id", "uuid")
_COLUMN = ("table", "parent", "ref_key", "fields", "extra", "on_delete", "on_tombstone")
_FIELD = ("column", "type", "lookup", "items", "null")
_LOOKUP = ("table", "key", "value")

_REF_KEYS = "Write {version: v} for one row, {column: n} for facts, {column: n, version: v} for child rows that change."


def load_layout(source: str | os.PathLike[str] | Mapping[str, Any], datastore: str | None = None) -> Layout:
    """Read and check a layout in full, or raise `InvalidLayout`.

    When the datastore is known, the layout may leave it out, but name no other.
    """
    try:
        if isinstance(source, Mapping):
            return _layout(dict(source), DocumentPlace(_SETTING), datastore)
        path = Path(source)
        return _layout(read_yaml(path, DocumentPlace(_SETTING)), DocumentPlace(str(path)), datastore)
    except InvalidConfig as refused:
        raise InvalidLayout(f"Layout {refused.key}: {refused.reason}.", hint=refused.hint) from None


def _layout(document: object, place: DocumentPlace, datastore: str | None) -> Layout:
    entry = place.mapping(document, _KEYS, ("row_key", "columns") if datastore else _KEYS)
    row_key = _row_key(entry["row_key"], place.under("row_key"))
    at = place.under("columns")
    example = f"columns: {{BASE: {{table: {row_key.table}, ref_key: {{version: base_version}}, fields: {{…}}}}}}"
    columns = {
        column_name(name, at): _column(str(name), value, at.under(str(name)), row_key)
        for name, value in named(entry["columns"], at, example)
    }
    _refuse_wrong_parents(columns.values(), row_key, at)
    _refuse_shared_tables(columns.values(), at)
    return Layout(_datastore(entry.get("datastore", datastore), datastore, place.under("datastore")), row_key, columns)


def _row_key(value: object, place: DocumentPlace) -> RowKeySource:
    entry = place.mapping(value, _ROW_KEY, _ROW_KEY)
    identity, uuid = physical_name(entry["id"], place.under("id")), physical_name(entry["uuid"], place.under("uuid"))
    if identity == uuid:
        reason = f"{uuid!r} is the id too"
        raise place.under("uuid").complaint(reason, "Name another column: `schema apply` adds it when it is missing.")
    return RowKeySource(table_name(entry["table"], place.under("table")), identity, uuid)


def _column(name: str, value: object, place: DocumentPlace, row_key: RowKeySource) -> MappedColumn:
    entry = place.mapping(value, _COLUMN, ("table", "ref_key"))
    parent, uuid = _parent(entry.get("parent"), place.under("parent"), row_key)
    column = MappedColumn(
        name=name,
        table=table_name(entry["table"], place.under("table")),
        uuid=uuid,
        parent=parent,
        ref_key=_ref_key(entry["ref_key"], place.under("ref_key"), is_child=parent is not None),
        fields=_fields(entry.get("fields"), place.under("fields"), has_extra=entry.get("extra") is not None),
        extra=physical_name(entry["extra"], place.under("extra")) if entry.get("extra") is not None else None,
        on_delete=choice(DeletePolicy, entry.get("on_delete"), place.under("on_delete"), DeletePolicy.TOMBSTONE),
        on_tombstone=_on_tombstone(entry.get("on_tombstone"), place.under("on_tombstone"), is_child=parent is not None),
    )
    _refuse_shared_columns(column, place, row_key)
    return column


def _parent(value: object, place: DocumentPlace, row_key: RowKeySource) -> tuple[str | None, str]:
    """The column that points to the parent's id, and that with the row key."""
    if value is None:
        return None, row_key.uuid
    entry = place.mapping(value, ("column", "uuid"), ("column",))
    uuid = physical_name(entry["uuid"], place.under("uuid")) if entry.get("uuid") is not None else row_key.uuid
    return physical_name(entry["column"], place.under("column")), uuid


def _ref_key(value: object, place: DocumentPlace, *, is_child: bool) -> RefKeySource:
    entry = place.mapping(value, ("column", "version"), ())
    if not entry:
        raise place.complaint("is empty", _REF_KEYS)
    source = RefKeySource(*(optional_name(entry.get(key), place.under(key)) for key in ("column", "version")))
    if is_child and source.column is None:
        hint = "Add column: a number that with the parent is unique; a table of one row per parent may add a constant."
        raise place.under("column").complaint("is missing: child rows of one parent differ by a number", hint)
    if not is_child and (source.column is not None or source.version is None):
        hint = f"Child rows need parent: {{column: …}}, the row itself ref_key: {{version: …}}. {_REF_KEYS}"
        raise place.under("column").complaint("numbers the rows of a parent, and there is no parent", hint)
    if source.column == source.version:
        raise place.under("version").complaint(f"{source.version!r} is the number too", "Name two columns.")
    return source


def _fields(value: object, place: DocumentPlace, *, has_extra: bool) -> tuple[Field, ...]:
    if value is None or value == {}:
        if has_extra:
            return ()
        raise place.complaint("is missing", "Name what bodies hold, or extra: a json column that holds all of it.")
    return tuple(
        _field(field_name(name, place), entry, place.under(str(name)))
        for name, entry in named(value, place, "fields: {fare: {column: fare_amount, type: decimal}}")
    )


def _field(name: str, value: object, place: DocumentPlace) -> Field:
    if isinstance(value, dict) and None in value:
        # `null: keep` without quotes: to YAML the key is no text.
        value = {"null" if key is None else key: given for key, given in value.items()}
    entry = place.mapping(value, _FIELD, ("type",))
    kind = choice(FieldType, entry["type"], place.under("type"))
    column = physical_name(entry.get("column", name), place.under("column"))
    null = entry.get("null")
    if null not in (None, "keep"):
        hint = "Write null: keep for a null in the body, or leave it out for a field that is missing then."
        raise place.under("null").complaint(f"{shown_setting(null)} is not keep", hint)
    lookup = _lookup(entry.get("lookup"), place.under("lookup"), kind)
    return Field(name, column, kind, lookup, _items(entry.get("items"), place.under("items"), kind), null == "keep")


def _lookup(value: object, place: DocumentPlace, kind: FieldType) -> Lookup | None:
    if value is None:
        return None
    entry = place.mapping(value, _LOOKUP, _LOOKUP)
    if kind is not FieldType.UUID:
        raise place.complaint(f"gives a UUID, the field is of type {kind.value}", "Write type: uuid.")
    key, found = physical_name(entry["key"], place.under("key")), physical_name(entry["value"], place.under("value"))
    if key == found:
        raise place.under("value").complaint(f"{found!r} is the key too", "Name the column that holds the UUID.")
    return Lookup(table_name(entry["table"], place.under("table")), key, found)


def _items(value: object, place: DocumentPlace, kind: FieldType) -> FieldType | None:
    if kind is not FieldType.ARRAY:
        if value is not None:
            raise place.complaint(f"is for arrays, the field is of type {kind.value}", "Leave it out.")
        return None
    items = choice(FieldType, value, place, FieldType.STRING)
    if items is FieldType.ARRAY:
        hint = "Name the type of the elements: Postgres' arrays of several dimensions are lists of lists of it."
        raise place.complaint("'array' is no type of elements", hint)
    return items


def _on_tombstone(value: object, place: DocumentPlace, *, is_child: bool) -> TombstonePolicy:
    if is_child and value is not None:
        raise place.complaint("is for the column of the row itself, not for child rows", "Leave it out here.")
    return choice(TombstonePolicy, value, place, TombstonePolicy.REFUSE)


def _refuse_wrong_parents(columns: Iterable[MappedColumn], row_key: RowKeySource, place: DocumentPlace) -> None:
    """Exactly one column is the row itself."""
    found = {column.name for column in columns if not column.is_child}
    for column in columns:
        if column.is_child and column.table == row_key.table:
            at = place.under(column.name).under("parent")
            raise at.complaint(f"{column.table} is the table of the rows themselves", "Leave parent out.")
        if not column.is_child and column.table != row_key.table:
            at = place.under(column.name).under("parent")
            hint = f"Add parent: {{column: …}}, which points to {row_key.table}.{row_key.id}."
            raise at.complaint(f"is missing: the rows are those of {row_key.table}, not of {column.table}", hint)
    if not found:
        hint = f"Add one with table: {row_key.table} and ref_key: {{version: base_version}}."
        raise place.complaint(f"no column is of {row_key.table}, whose rows are the rows of the datastore", hint)


def _refuse_shared_tables(columns: Iterable[MappedColumn], place: DocumentPlace) -> None:
    seen: dict[TableName, str] = {}
    for column in columns:
        if column.table in seen:
            at = place.under(column.name).under("table")
            raise at.complaint(f"{column.table} is the table of {seen[column.table]} too", "A table is one column.")
        seen[column.table] = column.name


def _refuse_shared_columns(column: MappedColumn, place: DocumentPlace, row_key: RowKeySource) -> None:
    """Each physical column has one meaning, but for the number of child rows, which bodies may hold too."""
    taken: dict[str, str] = {}
    for name, meaning, key in _meanings(column, row_key):
        if name in taken:
            at = DocumentPlace(place.source, f"{place.path}.{key}" if key else place.path)
            raise at.complaint(f"{name!r} is {taken[name]} too", "Name another column: each has one meaning.")
        taken[name] = meaning
    number = column.ref_key.column
    for field in column.fields:
        if field.column in taken and field.column != number:
            at = place.under("fields").under(field.name).under("column")
            hint = "Leave the field out." if taken[field.column].startswith("the ") else "A column is one field."
            raise at.complaint(f"{field.column!r} is {taken[field.column]} already", hint)
        taken[field.column] = f"field {field.name}"


def _meanings(column: MappedColumn, row_key: RowKeySource) -> Iterator[tuple[str, str, str]]:
    """Physical columns that are no fields: name, what it is, the key that says so."""
    yield column.uuid, "the row key", "parent.uuid" if column.is_child else ""
    if column.parent is None:
        yield row_key.id, f"the id, which is the column {LEGACY_ID}", ""
    else:
        yield column.parent, "the parent", "parent.column"
    if column.ref_key.column is not None:
        yield column.ref_key.column, "the number", "ref_key.column"
    if column.ref_key.version is not None:
        yield column.ref_key.version, "the version", "ref_key.version"
    if column.extra is not None:
        yield column.extra, "the column of extra", "extra"


def _datastore(value: object, expected: str | None, place: DocumentPlace) -> str:
    if not isinstance(value, str) or not value:
        raise place.complaint(f"{shown_setting(value)} is no datastore name", "Name the configuration's, like trips.")
    if expected is not None and value != expected:
        reason = f"{value!r} is not the datastore of this configuration, {expected!r}"
        raise place.complaint(reason, f"Write datastore: {expected}, or leave it out.")
    return value
