"""Looked-up pairs: the other table must have both columns, each unique and NOT NULL, or a row would have no answer."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.fitting import INTEGERS, KEYS, TEXTS
from tripstore.backends.postgres.layout.layout import Field, Lookup, MappedColumn
from tripstore.backends.postgres.layout.live import LiveColumn, LiveTable
from tripstore.backends.postgres.layout.meant_tables import meant_table


def check_lookup(column: MappedColumn, field: Field, table: LiveTable, live: LiveCatalogue) -> Iterator[Complaint]:
    if field.lookup is None:
        return
    key = f"columns.{column.name}.fields.{field.name}.lookup"
    other = live.tables.get(field.lookup.table)
    if other is None:
        yield error(key, f"there is no table {field.lookup.table}", meant_table(field.lookup.table, live.neighbours))
        return
    yield from _check_pair(field.lookup, other, key)
    own, its = table.columns.get(field.column), other.columns.get(field.lookup.key)
    if own is not None and its is not None:
        yield from _check_types(f"{table.name}.{field.column}", own, field.lookup, its)
        if not any(found.leads(field.column, other.name, field.lookup.key) for found in table.foreign_keys):
            reason = f"has no foreign key to {other.name} ({field.lookup.key})"
            yield note(f"{table.name}.{field.column}", reason, "A row whose key is not there cannot be read.")


def _check_pair(lookup: Lookup, other: LiveTable, key: str) -> Iterator[Complaint]:
    for name, part in ((lookup.key, "key"), (lookup.value, "value")):
        found = other.columns.get(name)
        where = f"{other.name}.{name}"
        if found is None:
            hint = f"Columns of {other.name}: {', '.join(other.columns)}."
            yield error(where, f"there is no such column, and {key}.{part} names it", hint)
            continue
        if part == "value" and (found.type.plain.name, found.type.plain.is_built_in) != ("uuid", True):
            yield error(where, f"is of type {found.shown_type}, and bodies hold a UUID", "Name a column of type uuid.")
        if not found.refuses_null:
            yield error(where, f"may be NULL, and {key} needs all pairs", "Fill it, then SET NOT NULL.")
        index = other.find_unique(name)
        if index is None:
            hint = f"CREATE UNIQUE INDEX CONCURRENTLY ON {other.name.sql} ({name})."
            yield error(where, f"is not unique, and {key} needs one answer", hint)


def _check_types(where: str, own: LiveColumn, lookup: Lookup, its: LiveColumn) -> Iterator[Complaint]:
    if own.type.plain.name not in KEYS or not own.type.plain.is_built_in:
        yield error(where, f"is of type {own.shown_type}, which is no key", "Keys are whole numbers, texts or UUIDs.")
    elif _family(own) != _family(its):
        reason = f"is of type {own.shown_type}, {lookup.table}.{lookup.key} of type {its.shown_type}"
        yield error(where, reason, "Name the column that it points to.")


def _family(column: LiveColumn) -> str:
    name = column.type.plain.name
    if name in INTEGERS:
        return "whole number"
    return "text" if name in TEXTS else name
