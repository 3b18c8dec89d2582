"""Columns of our tables that are not as they were created: what they hold may be cut, or lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from schemaless_core.engine.base import Fact, IndexTable
from schemaless_core.engine.mysql.indexes.tables import created_columns
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.schema import GUARD_COLUMN, ddl
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

OF_SHARDS = """\
SELECT table_name, column_name, column_type, is_nullable, COUNT(*), MIN(table_schema) FROM information_schema.columns
 WHERE table_schema LIKE %s AND table_schema REGEXP %s AND table_name = %s
 GROUP BY table_name, column_name, column_type, is_nullable"""
OF_META = """\
SELECT table_name, column_name, column_type, is_nullable, 1, table_schema FROM information_schema.columns
 WHERE table_schema = %s"""

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS {\w+}\.(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^  (\w+) ([A-Z]+(?:\(\d+\))?(?: UNSIGNED)?)(?: CHARACTER SET \w+)?( NOT NULL)?", re.MULTILINE)
_KEYS = {"PRIMARY", "UNIQUE", "KEY"}
#: MariaDB says how wide a number is shown.
_WIDTH = re.compile(r"int\(\d+\)")


class _Column(NamedTuple):
    kind: str
    is_required: bool

    def __str__(self) -> str:
        return self.kind if self.is_required else f"{self.kind} NULL"


def altered_columns(connection: DeadlineConnection, names: Names) -> list[Fact]:
    """What a doctor says of columns that are not as they were created; nothing where all are.

    A column that an operator added is none of ours, and hinders none. Missing tables: `schema apply` makes them.
    """
    with connection.cursor() as cursor:
        cursor.execute(OF_META, (f"{names.datastore}_meta",))
        of_meta = cursor.fetchall()
    of_cells = _of_shards(connection, names, "cell")
    return [*_facts(_created("shard.sql"), of_cells), *_facts(_created("meta.sql"), of_meta)]


def altered_index(connection: DeadlineConnection, names: Names, table: IndexTable) -> list[Fact]:
    """The same of the tables of an index version."""
    created = {name: _Column(*column) for name, column in created_columns(table).items()}
    return list(_facts({table.name: created}, _of_shards(connection, names, table.name)))


def _of_shards(connection: DeadlineConnection, names: Names, table_name: str) -> tuple[tuple[str, ...], ...]:
    """The columns of a table that each shard has one of."""
    like = names.datastore.replace("_", r"\_") + r"\_%"
    with connection.cursor() as cursor:
        cursor.execute(OF_SHARDS, (like, f"^{names.datastore}_[0-9]+$", table_name))
        found: tuple[tuple[str, ...], ...] = cursor.fetchall()
        return found


def _created(script: str) -> dict[str, dict[str, _Column]]:
    """The columns of each table of a script, as it makes them."""
    return {
        table: {
            name: _Column(kind.lower(), bool(required))
            for name, kind, required in _COLUMN.findall(lines)
            if name not in _KEYS
        }
        for table, lines in _TABLE.findall(ddl(script))
    }


def _facts(created: Mapping[str, Mapping[str, _Column]], found: tuple[tuple[str, ...], ...]) -> Iterator[Fact]:
    tables = Counter[str]()  # how many of a kind: as often as the column that the most of them have
    present = Counter[tuple[str, str]]()
    for table, name, kind, is_null, count, first in found:
        present[table, name] += int(count)
        tables[table] = max(tables[table], present[table, name])
        wanted = created.get(table, {}).get(name)
        is_now = _Column(_WIDTH.sub("int", kind.lower()), is_null != "YES")
        if wanted is not None and is_now != wanted:
            yield _fact(table, name, f"is {is_now}", int(count), first, wanted)
    for table, columns in created.items():
        for name, wanted in columns.items():
            if f"{table}.{name}" == GUARD_COLUMN:
                continue  # `schema apply` adds it
            if lacking := tables[table] - present[table, name]:
                yield _fact(table, name, "is missing", lacking, "", wanted)


def _fact(table: str, name: str, what: str, count: int, first: str, wanted: _Column) -> Fact:
    in_shards = "" if table in _created("meta.sql") else f" in {count} shards{f', {first} first' if first else ''}"
    where = f"{first}.{table}" if first else table
    created = f"{wanted.kind.upper()}{' NOT NULL' if wanted.is_required else ' NULL'}"
    verb = "MODIFY" if first else "ADD COLUMN"
    advice = f"Created as {created}; ALTER TABLE {where} {verb} {name} … makes it so again."
    return Fact("columns", f"{table}.{name} {what}{in_shards}", False, True, advice)
