"""Signs by which a proposal guesses: which column is a key, a number, a UUID, and whether rows change."""

from __future__ import annotations

import re

from tripstore.backends.postgres.layout.fitting import INTEGERS
from tripstore.backends.postgres.layout.live import LiveColumn, LiveTable

#: Columns that say that rows do change, and change whenever anything does.
TOUCHED = re.compile(r"(updated|modified|changed|touched)(_at|_on|_time)?|last_(update|modified|change)\w*|mtime")

#: How a column is called that names a row; a token or a session may get a new value.
NAMES_A_ROW = ("id", "key")


def find_uuid(table: LiveTable, *but: str) -> str | None:
    """A UUID of the table's own that names each row once."""
    pointers = {name for key in table.foreign_keys for name in key.columns}
    found = [
        column.name
        for column in table.columns.values()
        if column.name not in but
        and column.name not in pointers
        and column.type.plain.name == "uuid"
        and column.refuses_null
        and not column.is_generated
        and table.find_unique(column.name)
    ]
    return max(found, key=lambda name: name.endswith("uuid"), default=None)


def facts_said(table: LiveTable, parent: LiveTable, *, is_fact: bool) -> str:
    """What tells whether rows change, beside what was asked for. A restored copy has counted inserts alone."""
    touched = [name for name in table.columns if TOUCHED.fullmatch(name)]
    sign = ""
    if touched:
        sign = f"there is {touched[0]}"
    elif table.updated:
        sign = f"{table.updated} updates were counted"
    elif table.deleted and not parent.deleted:
        sign = f"{table.deleted} deletes were counted, none of them with {parent.name}"
    if is_fact:
        asked = (
            "facts, as was asked for: capture refuses every UPDATE of a mapped column, and DELETE without the parent"
        )
        return f"{asked}; but {sign}" if sign else asked
    if sign:
        return f"rows change: {sign}"
    hint = f"if rows of {table.name} never change, not even by a repair, --facts {table.name} leaves version out"
    return f"{table.inserted} inserts and no change were counted; {hint}" if table.inserted else ""


def is_number(column: LiveColumn | None) -> bool:
    return column is not None and column.type.plain.name in INTEGERS and column.refuses_null and not column.is_generated


def may_be_uuid(table: LiveTable, name: str) -> bool:
    column = table.columns.get(name)
    return column is None or (column.type.plain.name == "uuid" and not column.is_generated)


def surrogates(table: LiveTable) -> set[str]:
    """The table's own key, which means nothing elsewhere, unless it points to another table."""
    keys = {index.columns[0] for index in table.unique_indexes if index.is_primary and len(index.columns) == 1}
    own = {name for name in keys if is_number(table.columns.get(name))}
    return own - {name for key in table.foreign_keys for name in key.columns}
