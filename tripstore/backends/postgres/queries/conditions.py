"""Conditions on the fields of an index, and orders by them, in SQL over the physical columns that hold the fields.

A condition in SQL may hold for more rows than it should, never for fewer: whoever asks looks at the values again. An
order must be exact. So a field is translated only where the physical column, the layout's type and the index's type
agree in values and order; for all others the answer is None, and the work is done in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemaless_core.answers import Scalar
from schemaless_core.engine.index_sql import Clause
from schemaless_core.indexes.definition import Field as IndexField
from schemaless_core.indexes.query import CheckedCondition
from schemaless_core.indexes.values import (
    DECIMAL_DIGITS_AFTER,
    DECIMAL_DIGITS_BEFORE,
    TEXT_BYTES_MAX,
    YEAR_MIN,
    json_form,
)
from schemaless_core.indexes.values import FieldType as IndexType
from tripstore.backends.postgres.layout.layout import FieldType, Lookup, MappedColumn, TableName, quoted
from tripstore.backends.postgres.queries.physical import Physical, PhysicalTypes

_OPERATORS = {"!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NEVER = Clause("false", ())


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the values of a physical column are compared as those of an index field; `{c}` is the column."""

    type: str  #: What bound values are cast to.
    value: str = "{c}"  #: Compares and orders as the index does, for all values that the index can hold.
    same: str = "{c}"  #: Equal wherever `value` is, and such that an index of the company's can find it.
    is_held: str | None = None  #: Whether the index can hold the value; otherwise the field is missing.

    def exact(self, column: str) -> str:
        """The value of the field, NULL where it is missing."""
        value = self.value.format(c=column)
        return value if self.is_held is None else f"CASE WHEN {self.is_held.format(c=column)} THEN {value} END"


_BYTES_FIT = f"octet_length({{c}}) <= {TEXT_BYTES_MAX}"
_WORDS = "{c}::text"
_FINITE = "{c} > '-Infinity' AND {c} < 'Infinity'"  # NaN lies above infinity
_YEARS = f"{{c}} >= '{YEAR_MIN}-01-01 00:00:00+00' AND {{c}} < '10000-01-01 00:00:00+00'"
_IN_UTC = "({c} AT TIME ZONE 'UTC')"
#: The text of a float4 is read as float8, which is what readers of JSON do.
_WIDENED = "{c}::text::float8"

#: By physical type, type in the layout and type in the index.
_COMPARISONS = {
    (Physical.UUID, FieldType.UUID, IndexType.UUID): Comparison("uuid"),
    (Physical.UUID, FieldType.UUID, IndexType.STRING): Comparison("text", '{c}::text COLLATE "C"', "{c}::text"),
    (Physical.TEXT, FieldType.STRING, IndexType.STRING): Comparison("text", '{c} COLLATE "C"', is_held=_BYTES_FIT),
    (Physical.WORDS, FieldType.STRING, IndexType.STRING): Comparison(
        "text", f'{_WORDS} COLLATE "C"', f'{_WORDS} COLLATE "C"', _BYTES_FIT.replace("{c}", _WORDS)
    ),
    (Physical.INT, FieldType.INT, IndexType.INT): Comparison("bigint"),
    (Physical.INT, FieldType.INT, IndexType.FLOAT): Comparison("float8", "{c}::float8", "{c}::float8"),
    (Physical.INT, FieldType.INT, IndexType.DECIMAL): Comparison("numeric", "{c}::numeric", "{c}::numeric"),
    (Physical.FLOAT8, FieldType.FLOAT, IndexType.FLOAT): Comparison("float8", is_held=_FINITE),
    (Physical.FLOAT4, FieldType.FLOAT, IndexType.FLOAT): Comparison("float8", _WIDENED, _WIDENED, _FINITE),
    (Physical.NUMERIC, FieldType.DECIMAL, IndexType.DECIMAL): Comparison(
        "numeric",
        is_held=f"abs({{c}}) < 1e{DECIMAL_DIGITS_BEFORE} AND min_scale({{c}}) <= {DECIMAL_DIGITS_AFTER}"
        f" AND octet_length({{c}}::text) <= {TEXT_BYTES_MAX}",
    ),
    (Physical.BOOLEAN, FieldType.BOOLEAN, IndexType.BOOLEAN): Comparison("boolean"),
    (Physical.TIMESTAMPTZ, FieldType.DATETIME, IndexType.DATETIME): Comparison("timestamptz", is_held=_YEARS),
    # Without time zone it is in UTC, as it stands.
    (Physical.TIMESTAMP, FieldType.DATETIME, IndexType.DATETIME): Comparison(
        "timestamptz", _IN_UTC, _IN_UTC, _YEARS.replace("{c}", _IN_UTC)
    ),
}


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of an index that a physical column holds, or the table that the column points to."""

    column: str
    comparison: Comparison
    lookup: Lookup | None = None

    @property
    def is_searchable(self) -> bool:
        """Whether a plain index of Postgres finds the rows with a value."""
        return self.comparison.same == "{c}"

    def condition(self, alias: str, condition: CheckedCondition) -> Clause | None:
        """What holds for every row of `alias` whose field meets the condition; None: SQL cannot say it."""
        column = f"{alias}.{named(self.column)}"
        if self.lookup is None:
            return _compared(self.comparison, column, condition)
        found = _compared(self.comparison, f"l.{named(self.lookup.value)}", condition)
        if found is None:
            return None
        table, key = named_table(self.lookup.table), f"l.{named(self.lookup.key)}"
        if condition.operator in ("=", "in"):  # few keys: looked up first, then searched for
            return Clause(f"{column} = ANY (ARRAY(SELECT {key} FROM {table} l WHERE {found.text}))", found.values)
        return Clause(f"EXISTS (SELECT 1 FROM {table} l WHERE {key} = {column} AND {found.text})", found.values)

    def order(self, alias: str) -> str:
        """The value of the field, NULL where it is missing: it orders as the index does."""
        column = f"{alias}.{named(self.column)}"
        if self.lookup is None:
            return self.comparison.exact(column)
        table, value = named_table(self.lookup.table), self.comparison.exact(f"l.{named(self.lookup.value)}")
        return f"(SELECT {value} FROM {table} l WHERE l.{named(self.lookup.key)} = {column})"


def stored_field(column: MappedColumn, field: IndexField, types: PhysicalTypes) -> StoredField | None:
    """How SQL compares a field of an index, None if only Python can."""
    mapped = column.fields_by_name.get(field.name)
    if mapped is None:
        return None
    table, name = (
        (mapped.lookup.table, mapped.lookup.value) if mapped.lookup is not None else (column.table, mapped.column)
    )
    comparison = _COMPARISONS.get((types.of(table, name), mapped.kind, field.kind))
    return None if comparison is None else StoredField(mapped.column, comparison, mapped.lookup)


def bindable(kind: IndexType, value: Scalar) -> str | None:
    """A value as text, which SQL casts to its type; None for a text with a NUL, which no column of Postgres holds."""
    form = json_form(kind, value)
    text = str(form).lower() if isinstance(form, bool) else str(form)
    return None if "\0" in text else text


def named(name: str) -> str:
    """An identifier in a statement that has values to bind."""
    return quoted(name).replace("%", "%%")


def named_table(table: TableName) -> str:
    return table.sql.replace("%", "%%")


def _compared(comparison: Comparison, column: str, condition: CheckedCondition) -> Clause | None:
    kind, operator, place = condition.field.kind, condition.operator, f"%s::{comparison.type}"
    values = tuple(text for value in condition.values if (text := bindable(kind, value)) is not None)
    same, value = comparison.same.format(c=column), comparison.value.format(c=column)
    if operator in ("=", "in") and not values:
        return _NEVER
    if operator == "=":
        return Clause(f"{same} = {place}", values)
    if operator == "in":
        return Clause(f"{same} = ANY ({place}[])", (list(values),))
    if len(values) < len(condition.values):
        return None
    if operator == "between":
        return Clause(f"{value} BETWEEN {place} AND {place}", values)
    return Clause(f"{value} {_OPERATORS[operator]} {place}", values)
