"""The tables of index versions as both engines write them: columns, forward-only upserts, conditions, places.

Texts are built from checked names only; values are bound. What differs between the engines is their `Dialect`. Fields
stand behind a prefix, so that none can be called like a column of ours or a word of SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from schemaless_core.cell.answers import Scalar
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.definitions.values import IndexFieldType
from schemaless_core.engine.base import EntryQuery, EntryWrite, IndexTable, StoredEntry
from schemaless_core.errors import InvalidRequest, InvalidServer, shown

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}", re.ASCII)
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class Dialect(NamedTuple):
    """How an engine holds values."""

    #: What stands in a condition for a value of a type that is to be bound.
    placeholder: Callable[[IndexFieldType], str]
    #: A value as the driver is to bind it.
    native: Callable[[IndexFieldType, Scalar], Any]
    #: What the driver returns, as a value.
    value: Callable[[IndexFieldType, Any], Scalar]


class Clause(NamedTuple):
    """A part of a statement, and the values to bind in it."""

    text: str
    values: tuple[Any, ...]


def plain_decimal(number: Decimal) -> Decimal:
    """The same number without the zeros that a column of fixed width adds."""
    text = format(number, "f")
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)


def checked_name(name: str) -> str:
    """The name of a table or field, which definitions have checked already: it goes into statements as it is."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{shown(name)} is no name for a table.", hint="Use lower-case letters, digits and _.")
    return name


def field_columns(table: IndexTable) -> list[str]:
    """One per field; the first is the shard field's."""
    return [f"f_{checked_name(field.name)}" for field in table.fields]


def ref_columns(table: IndexTable) -> list[str]:
    """One per source column: the ref key that its fields came from."""
    return [f"ref_{number}" for number in range(table.columns)]


def columns(table: IndexTable) -> list[str]:
    """All columns, the primary key first."""
    shard_field, *others = field_columns(table)
    return [shard_field, "row_key", *others, *ref_columns(table), "dead"]


def other_columns(node: str, table: IndexTable, place: str) -> InvalidServer:
    """A table of this name is left of another definition: its entries are of that one."""
    index, _, number = table.name.rpartition("_v")
    return InvalidServer(
        node,
        f"its table {place} exists, with other columns than version {number} of index {index} has",
        hint="The number was used before; the control database may come from a backup. Run"
        f" `tripstore index drop {index} --version {number}`, then `tripstore index create {index}` takes the next.",
    )


def row_of(table: IndexTable, write: EntryWrite, dialect: Dialect) -> tuple[Any, ...]:
    """A write as values of all columns. A source column without ref key has no fields either."""
    fields = [
        None if value is None or write.refs[owner] is None else dialect.native(field.kind, value)
        for field, owner, value in zip(table.fields[1:], table.owners[1:], write.values[1:], strict=True)
    ]
    shard_value = dialect.native(table.fields[0].kind, write.shard_value)
    return (shard_value, write.row_key, *fields, *write.refs, int(write.is_dead))


def entry_of(table: IndexTable, row: Sequence[Any], dialect: Dialect) -> StoredEntry:
    """A row of all columns as an entry."""
    shard_value, row_key, *others, dead = row
    fields, refs = others[: len(table.fields) - 1], others[len(table.fields) - 1 :]
    values = tuple(
        None if stored is None else dialect.value(field.kind, stored)
        for field, stored in zip(table.fields, [shard_value, *fields], strict=True)
    )
    return StoredEntry(row_key, values, tuple(refs), bool(dead))


def assignments(table: IndexTable, incoming: Callable[[str], str]) -> str:
    """What an upsert does to an entry that is there: each source column moves with its ref key, and only forward.

    An equal one moves too: that is how repair mends a field. The ref key itself comes last, because MySQL assigns from
    left to right and the conditions are about the one that was stored.
    """
    moved = []
    for number, ref in enumerate(ref_columns(table)):
        newer = f"{incoming(ref)} >= COALESCE({ref}, {incoming(ref)})"
        fields = [
            column for column, owner in zip(field_columns(table)[1:], table.owners[1:], strict=True) if owner == number
        ]
        moved += [
            f"{column} = CASE WHEN {newer} THEN {incoming(column)} ELSE {column} END"
            for column in [*fields, *(["dead"] if number == 0 else []), ref]
        ]
    return ", ".join(moved)


def conditions(table: IndexTable, query: EntryQuery, dialect: Dialect) -> Clause:
    """Which entries a query is about, those after its place only."""
    shard_field = table.fields[0]
    same_shard = Clause(
        f"{field_columns(table)[0]} = {dialect.placeholder(shard_field.kind)} AND dead = 0",
        (dialect.native(shard_field.kind, query.shard_value),),
    )
    clauses = [same_shard, *(_condition(condition, dialect) for condition in query.conditions)]
    if query.after is not None:
        clauses.append(_after(table, query, *query.after, dialect))
    return _all_of(clauses)


def order(table: IndexTable, query: EntryQuery) -> str:
    """All engines put NULL first, and last in the exact reverse."""
    keys = [] if query.order_field is None else [field_columns(table)[query.order_field]]
    return ", ".join(f"{key} DESC" if query.descending else key for key in [*keys, "row_key"])


def after_key(table: IndexTable, after: tuple[Scalar, bytes] | None, dialect: Dialect) -> Clause:
    """The entries behind a primary key, dead ones included."""
    if after is None:
        return Clause("1 = 1", ())
    kind, (shard_value, row_key) = table.fields[0].kind, after
    shard_field, place, value = field_columns(table)[0], dialect.placeholder(kind), dialect.native(kind, shard_value)
    # The first part is where the scan of the key starts.
    row_key_place = dialect.placeholder(IndexFieldType.UUID)
    text = f"{shard_field} >= {place} AND ({shard_field} > {place} OR row_key > {row_key_place})"
    return Clause(text, (value, value, row_key))


def at_keys(table: IndexTable, keys: Sequence[tuple[Scalar, bytes]], dialect: Dialect) -> Clause:
    """The entries under these shard values and row keys."""
    kind, shard_field = table.fields[0].kind, field_columns(table)[0]
    key = f"({shard_field} = {dialect.placeholder(kind)} AND row_key = {dialect.placeholder(IndexFieldType.UUID)})"
    values = [value for shard_value, row_key in keys for value in (dialect.native(kind, shard_value), row_key)]
    return Clause(" OR ".join([key] * len(keys)), tuple(values))


def unchanged(table: IndexTable, entries: Sequence[StoredEntry], dialect: Dialect, same: str) -> Clause:
    """These entries as far as their ref keys are still these; `same` compares also what is NULL."""
    kind, shard_field = table.fields[0].kind, field_columns(table)[0]
    refs = "".join(f" AND {ref} {same} {dialect.placeholder(IndexFieldType.INT)}" for ref in ref_columns(table))
    key = f"{shard_field} = {dialect.placeholder(kind)} AND row_key = {dialect.placeholder(IndexFieldType.UUID)}"
    values: list[Any] = []
    for entry in entries:
        shard_value = entry.values[0]
        assert shard_value is not None  # it is part of the primary key
        values += [dialect.native(kind, shard_value), entry.row_key, *entry.refs]
    return Clause(" OR ".join([f"({key}{refs})"] * len(entries)), tuple(values))


def _condition(condition: CheckedCondition, dialect: Dialect) -> Clause:
    """A comparison with NULL is never true, as a condition never holds for a missing field."""
    kind, column = condition.field.kind, f"f_{checked_name(condition.field.name)}"
    place = dialect.placeholder(kind)
    values = tuple(dialect.native(kind, value) for value in condition.values)
    if condition.operator == "in":
        return Clause(f"{column} IN ({', '.join([place] * len(values))})" if values else "1 = 0", values)
    if condition.operator == "between":
        return Clause(f"{column} BETWEEN {place} AND {place}", values)
    return Clause(f"{column} {_OPERATORS[condition.operator]} {place}", values)


def _after(table: IndexTable, query: EntryQuery, value: Scalar | None, row_key: bytes, dialect: Dialect) -> Clause:
    """What stands behind a place of the order, where missing values come first, or last in the reverse."""
    beyond = "<" if query.descending else ">"
    next_row = f"row_key {beyond} {dialect.placeholder(IndexFieldType.UUID)}"
    if query.order_field is None:
        return Clause(next_row, (row_key,))
    kind, column = table.fields[query.order_field].kind, field_columns(table)[query.order_field]
    if value is None:
        text = f"{column} IS NULL AND {next_row}" if query.descending else f"({column} IS NOT NULL OR {next_row})"
        return Clause(text, (row_key,))
    place, native = dialect.placeholder(kind), dialect.native(kind, value)
    missing = f" OR {column} IS NULL" if query.descending else ""
    return Clause(
        f"({column} {beyond} {place} OR ({column} = {place} AND {next_row}){missing})", (native, native, row_key)
    )


def _all_of(clauses: Sequence[Clause]) -> Clause:
    return Clause(
        " AND ".join(clause.text for clause in clauses), tuple(value for clause in clauses for value in clause.values)
    )
