"""The fields that a proposal has for the columns of a table; for those that bodies should not hold, the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tripstore.backends.postgres.layout.fitting import KEYS, find_misfit, proposed_type
from tripstore.backends.postgres.layout.layout import Field, FieldType, Lookup, TableName, quoted
from tripstore.backends.postgres.layout.live import LiveColumn, LiveTable
from tripstore.backends.postgres.layout.reading_names import is_supported
from tripstore.backends.postgres.proposals.proposal import ProposedField
from tripstore.backends.postgres.proposals.signs import TOUCHED, find_uuid

Known = Mapping[TableName, LiveTable]


def propose_fields(table: LiveTable, known: Known, taken: set[str]) -> tuple[ProposedField, ...]:
    """One for each column but those that are taken; `known` are the tables that rows may point to."""
    return tuple(_propose(table, column, known) for name, column in table.columns.items() if name not in taken)


def _propose(table: LiveTable, column: LiveColumn, known: Known) -> ProposedField:
    why = _why_not(table, column)
    if why:
        return ProposedField(column.name, None, why)
    looked_up = _lookup(table, column, known)
    if looked_up is not None:
        return looked_up
    kind = proposed_type(column.type)
    if kind is None:
        misfit = find_misfit(Field(column.name, column.name, FieldType.STRING), column.type)
        return ProposedField(column.name, None, f"{column.shown_type}: {misfit}")
    element = column.type.plain.element
    items = proposed_type(element) if kind is FieldType.ARRAY and element is not None else None
    return ProposedField(column.name, _plain(column.name, kind, items), "; ".join(_remarks(table, column)))


def _why_not(table: LiveTable, column: LiveColumn) -> str:
    """Why bodies should not hold it: mostly because Postgres itself, or a trigger, gives it its value."""
    always, _ = table.fillers(column.name)
    if not is_supported(column.name):
        return "its name holds a character that is not supported"
    if column.is_generated:
        return "Postgres computes it"
    if column.is_always_identity:
        return "GENERATED ALWAYS AS IDENTITY: puts could not write it"
    if always is not None:
        return f"trigger {always.name} fills it, and a put would come out with another value than it brought"
    if TOUCHED.fullmatch(column.name) and column.fills_itself:
        return "changes whenever anything does, and would make a version each time"
    return ""


def _remarks(table: LiveTable, column: LiveColumn) -> list[str]:
    """What to look at of a column that bodies do hold."""
    found = []
    _, at_times = table.fillers(column.name)
    if column.type.plain.name == "timestamp":
        found.append("has no time zone: make sure that it is UTC")
    if at_times is not None:
        found.append(f"trigger {at_times.name} may change it: a put that comes out changed is refused")
    if TOUCHED.fullmatch(column.name):
        statement = f"ALTER TABLE {table.name.sql} ALTER COLUMN {quoted(column.name)} SET DEFAULT now()"
        found.append(
            f"the application fills it, so puts have to, and each touch is a version; to leave it out: {statement}"
        )
    return found


def _lookup(table: LiveTable, column: LiveColumn, known: Known) -> ProposedField | None:
    """A key of another table, which bodies should hold as a UUID."""
    for key in table.foreign_keys:
        if key.columns != (column.name,) or column.type.plain.name not in KEYS:
            continue
        other = known.get(key.target)
        uuid = None if other is None else find_uuid(other, key.target_columns[0])
        if uuid is None and column.type.plain.name == "uuid":
            return None  # what it points to is named by a UUID: bodies hold that
        if uuid is None:
            kind = proposed_type(column.type)
            remark = f"points to {key.target}, which has no unique NOT NULL uuid: bodies would hold its key"
            return ProposedField(column.name, None if kind is None else _plain(column.name, kind), remark)
        lookup = Lookup(key.target, key.target_columns[0], uuid)
        name = re.sub(r"_id$", "", column.name) + "_uuid"
        return ProposedField(column.name, Field(name, column.name, FieldType.UUID, lookup))
    return None


def _plain(name: str, kind: FieldType, items: FieldType | None = None) -> Field:
    return Field(name, name, kind, items=items)
