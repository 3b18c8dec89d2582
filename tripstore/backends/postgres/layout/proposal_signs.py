"""Signs by which a proposal guesses: which column is a key, a number, a UUID, and whether rows change."""

from __future__ import annotations

import re

from tripstore.backends.postgres.layout.fitting import INTEGERS
from tripstore.backends.postgres.layout.live import LiveColumn, LiveTable

#: Columns that say that rows do change, and change whenever anything does.
TOUCHED = re.compile(r"(updated|modified|changed|touched)(_at|_on|_time)?|last_(update|modified|change)\w*|mtime")


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


def find_number(table: LiveTable, pointer: str) -> tuple[str | None, str]:
    """What tells the rows of one parent apart, and what has to be said of it."""
    for index in table.unique_indexes:
        others = [name for name in index.columns if name != pointer]
        if len(others) == 1 and index.is_exactly((pointer, others[0])) and is_number(table.columns.get(others[0])):
            return others[0], "" if index.is_immediate else f"{index.name} is DEFERRABLE: make an immediate one"
    for index in table.unique_indexes:
        if index.is_primary and len(index.columns) == 1 and is_number(table.columns.get(index.columns[0])):
            statement = f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.name.sql} ({pointer}, {index.columns[0]})"
            return index.columns[0], f"its own key is taken for the number: {statement}"
    if table.find_unique(pointer):
        return None, "one row per parent has no number: add a constant one, NOT NULL, and a unique index with it"
    return None, f"no unique index on ({pointer}, a whole number): add one"


def changes(table: LiveTable, parent: LiveTable) -> tuple[bool, str]:
    """Whether rows change, and by what sign."""
    touched = [name for name in table.columns if TOUCHED.fullmatch(name)]
    if touched:
        return True, f"rows change: there is {touched[0]}"
    hint = "; if only columns that are not mapped change, they are facts: leave version out"
    if table.updated:
        return True, f"rows change: {table.updated} updates were counted{hint}"
    if table.deleted and not parent.deleted:
        return True, f"rows change: {table.deleted} deletes were counted, none of them with {parent.name}"
    if not table.inserted:
        return True, "nothing was counted here yet; if rows never change, they are facts: leave version out"
    return False, f"facts: {table.inserted} inserts were counted, and no update. Add version: if rows may change"


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
