"""Columns of our tables that are not as they were created, as on a server: compared with those of an empty file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from schemaless_core.engine.base import Fact

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
COLUMNS = 'SELECT name, type, "notnull" FROM pragma_table_info(?)'


def altered_columns(connection: sqlite3.Connection, script: str) -> Iterator[Fact]:
    """What a doctor says of the tables that a script makes; those that are missing are not its concern."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(script)
        created = _columns(empty)
    found = _columns(connection)
    for table in created.keys() & found.keys():
        for name, wanted in created[table].items():
            if (is_now := found[table].get(name)) != wanted:
                what = "is missing" if is_now is None else f"is {_told(*is_now)}"
                advice = f"Created as {_told(*wanted)}; restore the file, or copy the table into one made anew."
                yield Fact("columns", f"{table}.{name} {what}", False, True, advice)


def _columns(connection: sqlite3.Connection) -> dict[str, dict[str, tuple[str, int]]]:
    tables = [name for (name,) in connection.execute(TABLES)]
    return {
        table: {name: (kind, required) for name, kind, required in connection.execute(COLUMNS, (table,))}
        for table in tables
    }


def _told(kind: str, required: int) -> str:
    return f"{kind} NOT NULL" if required else f"{kind} NULL"
