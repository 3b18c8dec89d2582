"""Creation and removal of the tables of an index version, one per shard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from schemaless_core.engine.base import IndexTable
from schemaless_core.engine.index_sql import columns, field_columns, other_columns, ref_columns
from schemaless_core.engine.mysql.indexes.natives import COLUMN_TYPES
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

# The refs may be missing but the shard column's: without it there is no shard value, and no entry.
CREATE = """\
CREATE TABLE IF NOT EXISTS {table} (COLUMNS,
 PRIMARY KEY (SHARD_FIELD, row_key)) ENGINE=InnoDB"""
DROP = "DROP TABLE IF EXISTS TABLES"

COLUMNS = """\
SELECT column_name, column_type, COUNT(*), MIN(table_schema) FROM information_schema.columns
 WHERE table_schema LIKE %s AND table_schema REGEXP %s AND table_name = %s GROUP BY column_name, column_type"""

# By its name alone: a pattern has the server open the tables of all its shards.
COLUMNS_OF_ONE = COLUMNS.replace("table_schema LIKE %s AND table_schema REGEXP %s", "table_schema = %s")

#: Old versions say how wide a whole number is shown.
_WIDTH = re.compile(r"int\(\d+\)")

#: Tables per packet of DDL: what a kill can leave half-made. Others' packets come in between.
TABLES_PER_PACKET = 32


def create_tables(connection: DeadlineConnection, names: Names, table: IndexTable, shards: Sequence[int]) -> None:
    """Create one packet of tables; those that are there stay as they are."""
    template = _create_statement(table)
    with connection.cursor() as cursor:
        cursor.execute("; ".join(template.format(table=names.index(shard, table.name)) for shard in shards))
        while cursor.nextset():
            pass


def create_table(connection: DeadlineConnection, names: Names, table: IndexTable, shard: int) -> None:
    """Create the table of one shard, which may be there. The other shards of the server are not looked at."""
    with connection.cursor() as cursor:
        cursor.execute(_create_statement(table).format(table=names.index(shard, table.name)))
        cursor.execute(COLUMNS_OF_ONE, (names.database(shard).strip("`"), table.name))
        _check_columns(connection, table, cursor.fetchall())


def check_columns(connection: DeadlineConnection, names: Names, table: IndexTable) -> None:
    """Refuse tables that were there with other columns, which creation left as they are."""
    like = names.datastore.replace("_", r"\_") + r"\_%"
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS, (like, f"^{names.datastore}_[0-9]+$", table.name))
        _check_columns(connection, table, cursor.fetchall())


def _check_columns(connection: DeadlineConnection, table: IndexTable, rows: Sequence[tuple[Any, ...]]) -> None:
    found = [(name, _WIDTH.sub("int", kind.lower()), count, first) for name, kind, count, first in rows]
    wanted = {(name, kind) for name, (kind, _is_required) in created_columns(table).items()}
    if {(name, kind) for name, kind, _count, _first in found} == wanted and len({each[2] for each in found}) == 1:
        return
    odd = [first for name, kind, _count, first in found if (name, kind) not in wanted] or [found[0][3]]
    raise other_columns(connection.node, table, f"{min(odd)}.{table.name}")


def created_columns(table: IndexTable) -> dict[str, tuple[str, bool]]:
    """Type of each column as the server tells it, and whether the column must have a value."""
    required = _required(table)
    return {name: (kind.lower().replace(", ", ","), name in required) for name, kind in _types(table).items()}


def drop_tables(connection: DeadlineConnection, names: Names, table_name: str, shards: Sequence[int]) -> None:
    """Drop one packet of tables, whichever of them are there."""
    with connection.cursor() as cursor:
        cursor.execute(DROP.replace("TABLES", ", ".join(names.index(shard, table_name) for shard in shards)))


def _types(table: IndexTable) -> dict[str, str]:
    types = {column: COLUMN_TYPES[field.kind] for column, field in zip(field_columns(table), table.fields, strict=True)}
    return types | dict.fromkeys(ref_columns(table), "BIGINT") | {"row_key": "BINARY(16)", "dead": "TINYINT"}


def _required(table: IndexTable) -> set[str]:
    return {field_columns(table)[0], "row_key", "ref_0", "dead"}


def _create_statement(table: IndexTable) -> str:
    types, required = _types(table), _required(table)
    lines = [f"{column} {types[column]} {'NOT NULL' if column in required else 'NULL'}" for column in columns(table)]
    return CREATE.replace("COLUMNS", ", ".join(lines)).replace("SHARD_FIELD", field_columns(table)[0])
