"""UUIDs of rows in tables that stay in Postgres, by their integer keys."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import text

from schemaless_core.errors import InvalidRequest, shown
from tripstore.backends.postgres.layout.layout import quoted

#: The value of a query that finds nothing: a key that no row of another table has.
NO_ROW: Any = object()


def looked_up(handle: Any, table: str, key: str, value: str, number: int | None, *, or_else: Any = None) -> Any:
    """The UUID of a row of another table, which stays in Postgres, by its key; a pair of them never changes.

    `handle` is a cursor, or a session or connection of SQLAlchemy. Of a key that is not there, `or_else`, or an error.
    None is NULL where it is written. Where it is looked for, SQL and SQLAlchemy do not agree, and it is refused.
    """
    if number is None and or_else is not None:
        raise InvalidRequest(f"No index finds rows without {table}.{key}.", hint="Ask for them in another way.")
    if number is None:
        return None
    names = ", ".join(map(quoted, table.split("."))).replace(", ", ".")
    statement = f"SELECT {quoted(value)} FROM {names} WHERE {quoted(key)} = "
    if hasattr(handle, "fetchone"):
        handle.execute(statement + "%s", (number,))
        row = handle.fetchone()
    else:
        row = handle.execute(text(statement + ":number"), {"number": number}).first()
    if row is None and or_else is None:
        raise InvalidRequest(f"No row of {table} has {key} {shown(number)}.", hint="A foreign key would refuse it.")
    return or_else if row is None else UUID(str(row[0]))
