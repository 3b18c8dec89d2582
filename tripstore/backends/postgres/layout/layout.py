"""`Layout`: how Postgres tables hold columns of cells. Data only; read from YAML by `reading`, checked by `check`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Self

from schemaless_core import InvalidRequest, Json
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.children import FACTS, Children

#: The layout number of a row as it stands in its table now.
CURRENT = 0
#: A ref key of `{column: n, version: v}` is n·2^20 + v.
VERSION_BITS = 20
VERSION_MAX = (1 << VERSION_BITS) - 1
NUMBER_MAX = (1 << 42) - 1

#: The column that pairs the legacy id of a row with its UUID: one cell with ref key 0 and the body {"id": 123}.
LEGACY_ID = "_LEGACY_ID"


def quoted(name: str) -> str:
    """An identifier as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


_PARTS = re.compile(r'(?:(?:"([^"]+)"|([^".]+))\.)?(?:"([^"]+)"|([^".]+))')


def _dotted(name: str) -> str:
    return quoted(name) if "." in name else name


class TableName(NamedTuple):
    """A table of the company's."""

    schema: str
    name: str

    @classmethod
    def find(cls, text: str) -> Self | None:
        """The table that a text names: a name, or schema.name; each may be in quotes, and one with a dot must be."""
        found = _PARTS.fullmatch(text)
        if found is None:
            return None
        schema, plain_schema, name, plain_name = found.groups()
        return cls(schema or plain_schema or "public", name or plain_name)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def __str__(self) -> str:
        """As it stands in a layout and after --table; a name with a dot is quoted there."""
        name = _dotted(self.name)
        return name if self.schema == "public" else f"{_dotted(self.schema)}.{name}"


class FieldType(StrEnum):
    """What a physical column's values are in bodies."""

    UUID = "uuid"
    STRING = "string"
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATETIME = "datetime"
    DATE = "date"
    BYTES = "bytes"
    JSON = "json"
    ARRAY = "array"


class RefKeyKind(StrEnum):
    """What the ref keys of a column's cells come from."""

    VERSION = "version"  #: One row, changed in place: its version.
    FACT = "fact"  #: Child rows that never change: their number.
    CHILD = "child"  #: Child rows that change: number and version.


class DeletePolicy(StrEnum):
    """What the deletion of a mapped row means."""

    TOMBSTONE = "tombstone"
    IGNORE = "ignore"
    FORBID = "forbid"


class TombstonePolicy(StrEnum):
    """What a tombstone of the parent column does, put through the facade while other columns have rows."""

    REFUSE = "refuse"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, order=True)
class Lookup:
    """A pair of another table that never changes: rows point to its key, bodies hold its UUID."""

    table: TableName
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Field:
    """One top-level key of the bodies of a column, and the physical column that holds it."""

    name: str
    column: str
    kind: FieldType
    lookup: Lookup | None = None
    items: FieldType | None = None  #: Of an array.
    keeps_null: bool = False  #: NULL is `null` in the body; otherwise the field is missing.


@dataclass(frozen=True, slots=True)
class RefKeySource:
    """The physical columns that make ref keys."""

    column: str | None = None
    version: str | None = None

    @property
    def kind(self) -> RefKeyKind:
        if self.column is None:
            return RefKeyKind.VERSION
        return RefKeyKind.FACT if self.version is None else RefKeyKind.CHILD


@dataclass(frozen=True, slots=True)
class RowKeySource:
    """The table whose rows are the rows of the datastore, its integer id, and the UUID that is the row key."""

    table: TableName
    id: str
    uuid: str


@dataclass(frozen=True)
class MappedColumn:
    """A column of cells and the table that holds it."""

    name: str
    table: TableName
    uuid: str  #: The physical column with the row key, in child tables too.
    parent: str | None  #: The physical column that points to the parent's id; None in the parent itself.
    ref_key: RefKeySource
    fields: tuple[Field, ...]
    extra: str | None = None  #: A json column for the keys of bodies that no field holds.
    on_delete: DeletePolicy = DeletePolicy.TOMBSTONE
    on_tombstone: TombstonePolicy = TombstonePolicy.REFUSE

    @property
    def is_child(self) -> bool:
        return self.parent is not None

    @property
    def takes_new_keys(self) -> bool:
        """Whether a row may get another number or parent: a child that has versions, and may be deleted."""
        changes = self.ref_key.kind is not RefKeyKind.FACT and self.on_delete is not DeletePolicy.FORBID
        return self.is_child and changes

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """The physical columns whose values a cell is made of, each once.

        Sorted, as the digest is: a layout whose lines were put in another order is the same, and so is capture's text.
        """
        names = {field.column for field in self.fields} | ({self.extra} if self.extra else set())
        return tuple(sorted(names))

    @cached_property
    def fields_by_name(self) -> Mapping[str, Field]:
        return {field.name: field for field in self.fields}

    def compose(self, number: int, version: int) -> int:
        """The ref key of a row: by its number and version, of which a kind may know only one."""
        match self.ref_key.kind:
            case RefKeyKind.VERSION:
                return version
            case RefKeyKind.FACT:
                return number
        if not (0 <= number <= NUMBER_MAX and 0 <= version <= VERSION_MAX):
            raise InvalidRequest(
                f"Row {number}, version {version}, of {self.name} has no ref key.",
                hint=f"Numbers go from 0 to {NUMBER_MAX}, versions to {VERSION_MAX}.",
            )
        return number << VERSION_BITS | version

    def split(self, ref_key: int) -> tuple[int, int]:
        """Number and version of a ref key; what the kind does not know is 0."""
        match self.ref_key.kind:
            case RefKeyKind.VERSION:
                return 0, ref_key
            case RefKeyKind.FACT:
                return ref_key, 0
        return ref_key >> VERSION_BITS, ref_key & VERSION_MAX

    @property
    def child_bits(self) -> int | None:
        """How many bits of a ref key are the version of a child, 0 of facts; None: the column holds one row."""
        match self.ref_key.kind:
            case RefKeyKind.VERSION:
                return None
            case RefKeyKind.FACT:
                return FACTS
        return VERSION_BITS

    def is_first(self, ref_key: int) -> bool:
        """Whether it is that of a row that was never changed."""
        _number, version = self.split(ref_key)
        return self.ref_key.kind is RefKeyKind.FACT or version == (0 if self.ref_key.kind is RefKeyKind.CHILD else 1)

    def ref_key_sql(self, row: str) -> str:
        """The ref key of a row in SQL; `row` is its alias, NEW or OLD."""
        number = f"{row}.{quoted(self.ref_key.column)}" if self.ref_key.column else ""
        version = f"{row}.{quoted(self.ref_key.version)}" if self.ref_key.version else ""
        if number and version:
            return f"(({number})::bigint << {VERSION_BITS} | {version})"
        return f"({number or version})::bigint"

    def number_sql(self, ref_key: str) -> str:
        """The number that a row's tomb is kept under, in SQL: a child's that changes; 0 for all others."""
        return f"{ref_key} >> {VERSION_BITS}" if self.ref_key.kind is RefKeyKind.CHILD else "0"

    def kept_number(self, ref_key: int) -> int:
        """The number under which a row whose deletion is ignored is kept: -1 - n of a fact, beside the 0 of all."""
        if self.ref_key.kind is RefKeyKind.FACT:
            return ~ref_key
        return self.split(ref_key)[0] if self.ref_key.kind is RefKeyKind.CHILD else 0

    def row_sql(self, row: str) -> str:
        """The text of a row's captured columns, one JSON object by physical name; `row` is an alias, NEW or OLD.

        All values are texts in it: JSON's own forms of some lose what Postgres tells apart, like json's null and NULL.
        """
        pairs = ", ".join(f"{row}.{quoted(name)}::pg_catalog.text" for name in self.captured)
        names = ", ".join(quoted(name) for name in self.captured)
        return f"(SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT {pairs}) AS captured({names}))"


@dataclass(frozen=True)
class Layout:
    """All mapped columns of one datastore."""

    datastore: str
    row_key: RowKeySource
    columns: Mapping[str, MappedColumn]

    @cached_property
    def parent(self) -> MappedColumn:
        """The column of the table whose rows are the rows of the datastore."""
        return next(column for column in self.columns.values() if not column.is_child)

    @cached_property
    def children(self) -> tuple[MappedColumn, ...]:
        return tuple(column for column in self.columns.values() if column.is_child)

    @cached_property
    def child_bits(self) -> Children:
        """The columns that hold many rows below one row key, and how their ref keys tell these apart."""
        return {name: bits for name, each in self.columns.items() if (bits := each.child_bits) is not None}

    @cached_property
    def tables(self) -> frozenset[TableName]:
        return frozenset(column.table for column in self.columns.values())

    @cached_property
    def lookups(self) -> tuple[Lookup, ...]:
        """Every looked-up pair once, in an order that the layout's lines do not decide."""
        return tuple(
            sorted({field.lookup for column in self.columns.values() for field in column.fields if field.lookup})
        )

    @cached_property
    def digest(self) -> str:
        """Equal for equal layouts, wherever they were read."""
        return sha256(canonical_bytes(self.to_document())).hexdigest()[:16]

    def keys_of(self, column: MappedColumn) -> frozenset[str]:
        """The physical columns by which a row is found: id or parent, row key, and number."""
        first = self.row_key.id if column.parent is None else column.parent
        number = {column.ref_key.column} if column.ref_key.column is not None else set()
        return frozenset({first, column.uuid} | number)

    def ref_key(self, column_name: str, number: int, version: int) -> int:
        return self.columns[column_name].compose(number, version)

    def split(self, column_name: str, ref_key: int) -> tuple[int, int]:
        return self.columns[column_name].split(ref_key)

    def to_document(self) -> dict[str, Json]:
        """The layout in the shape of its YAML, everything said that a file may leave out."""
        return {
            "datastore": self.datastore,
            "row_key": {"table": str(self.row_key.table), "id": self.row_key.id, "uuid": self.row_key.uuid},
            "columns": {name: _column_document(column) for name, column in self.columns.items()},
        }


def _column_document(column: MappedColumn) -> dict[str, Json]:
    source = {"column": column.ref_key.column, "version": column.ref_key.version}
    document: dict[str, Json] = {
        "table": str(column.table),
        "ref_key": {key: name for key, name in source.items() if name is not None},
        "fields": {field.name: _field_document(field) for field in column.fields},
        "on_delete": column.on_delete.value,
    }
    if column.parent is not None:
        document["parent"] = {"column": column.parent, "uuid": column.uuid}
    else:
        document["on_tombstone"] = column.on_tombstone.value
    if column.extra is not None:
        document["extra"] = column.extra
    return document


def _field_document(field: Field) -> dict[str, Json]:
    document: dict[str, Json] = {"column": field.column, "type": field.kind.value}
    if field.lookup is not None:
        lookup = field.lookup
        document["lookup"] = {"table": str(lookup.table), "key": lookup.key, "value": lookup.value}
    if field.items is not None:
        document["items"] = field.items.value
    if field.keeps_null:
        document["null"] = "keep"
    return document
