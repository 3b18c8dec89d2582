"""Conditions on the fields of an index, and orders by them, in SQL over the physical columns that hold the fields.

A condition in SQL may hold for more rows than it should, never for fewer: the caller looks at the values again. An
order must be exact. So a field is translated only where the physical column, the layout's type and the index's type
agree in values and order; for all others the answer is None, and the work is done in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemaless_core.cell.answers import Scalar
from schemaless_core.definitions.index import IndexField as IndexField
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.definitions.values import (
    DECIMAL_DIGITS_AFTER,
    DECIMAL_DIGITS_BEFORE,
    TEXT_BYTES_MAX,
    YEAR_MIN,
    json_form,
)
from schemaless_core.definitions.values import IndexFieldType as IndexType
from schemaless_core.engine.index_sql import Clause
from tripstore.backends.postgres.capture.names import literal
from tripstore.backends.postgres.codec.lookups import pair_name
from tripstore.backends.postgres.layout.layout import FieldType, Lookup, MappedColumn, TableName, quoted
from tripstore.backends.postgres.names import SCHEMA
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


#: What keys, which `tripstore.pair` holds as texts, are cast to, so that the company's index on them is of use.
_KEYS = {Physical.INT: "bigint", Physical.UUID: "uuid", Physical.TEXT: "text"}


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Values that stand in a table which a column points to, or did before they were deleted there."""

    lookup: Lookup
    comparison: Comparison
    key: Physical  #: The type of the column that points.

    def condition(self, column: str, condition: CheckedCondition) -> Clause | None:
        if condition.operator not in ("=", "in"):
            return _compared(Comparison(self.comparison.type), self.value(column), condition)
        # Few keys: looked up first, then searched for. Pairs hold the texts that values are bound as.
        present = _compared(self.comparison, f"l.{named(self.lookup.value)}", condition)
        deleted = _compared(Comparison("text"), "p.value", condition)
        if present is None or deleted is None:
            return None
        key, type_name = f"l.{named(self.lookup.key)}", _KEYS.get(self.key)
        if type_name is None:
            column, key, type_name = f"{column}::text", f"{key}::text", "text"
        keys = (
            f"SELECT {key} FROM {named_table(self.lookup.table)} l WHERE {present.text}"
            f" UNION ALL SELECT p.key::{type_name} FROM {self._deleted} AND {deleted.text}"
        )
        return Clause(f"{column} = ANY (ARRAY({keys}))", present.values + deleted.values)

    def value(self, column: str) -> str:
        """The value of the field, NULL where it is missing."""
        present = self.comparison.exact(f"l.{named(self.lookup.value)}")
        deleted = self.comparison.exact(f"p.value::{self.comparison.type}")
        return (
            f"COALESCE((SELECT {present} FROM {named_table(self.lookup.table)} l"
            f" WHERE l.{named(self.lookup.key)} = {column}),"
            f" (SELECT {deleted} FROM {self._deleted} AND p.key = {column}::text))"
        )

    @property
    def _deleted(self) -> str:
        return f"{SCHEMA}.pair p WHERE p.lookup = {literal(pair_name(self.lookup)).replace('%', '%%')}"


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of an index that a physical column holds, or the table that the column points to."""

    column: str
    comparison: Comparison
    looked_up: LookedUp | None = None

    @property
    def is_searchable(self) -> bool:
        """Whether a plain index of Postgres finds the rows with a value."""
        return self.comparison.same == "{c}"

    def condition(self, alias: str, condition: CheckedCondition) -> Clause | None:
        """What holds for every row of `alias` whose field meets the condition; None: SQL cannot say it."""
        column = f"{alias}.{named(self.column)}"
        if self.looked_up is None:
            return _compared(self.comparison, column, condition)
        return self.looked_up.condition(column, condition)

    def order(self, alias: str) -> str:
        """The value of the field, NULL where it is missing: it orders as the index does."""
        column = f"{alias}.{named(self.column)}"
        return self.comparison.exact(column) if self.looked_up is None else self.looked_up.value(column)


def stored_field(column: MappedColumn, field: IndexField, types: PhysicalTypes) -> StoredField | None:
    """How SQL compares a field of an index, None if only Python can."""
    mapped = column.fields_by_name.get(field.name)
    if mapped is None:
        return None
    own, lookup = types.of(column.table, mapped.column), mapped.lookup
    physical = own if lookup is None else types.of(lookup.table, lookup.value)
    comparison = _COMPARISONS.get((physical, mapped.kind, field.kind))
    if comparison is None:
        return None
    return StoredField(mapped.column, comparison, None if lookup is None else LookedUp(lookup, comparison, own))


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
