"""Creation and removal of the tables of an index version, one per shard."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.engine.base import IndexTable
from schemaless_core.engine.index_sql import columns, field_columns, ref_columns
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.natives import COLUMN_TYPES

# The refs may be missing but the shard column's: without it there is no shard value, and no entry.
CREATE = """\
CREATE TABLE IF NOT EXISTS {table} (COLUMNS,
 PRIMARY KEY (SHARD_FIELD, row_key)) ENGINE=InnoDB"""
DROP = "DROP TABLE IF EXISTS TABLES"

#: Tables per packet of DDL: what a kill can leave half-made. Others' packets come in between.
TABLES_PER_PACKET = 32


def create_tables(connection: DeadlineConnection, names: Names, table: IndexTable, shards: Sequence[int]) -> None:
    """Create one packet of tables; those that are there stay as they are."""
    template = _create_statement(table)
    with connection.cursor() as cursor:
        cursor.execute("; ".join(template.format(table=names.index(shard, table.name)) for shard in shards))
        while cursor.nextset():
            pass


def drop_tables(connection: DeadlineConnection, names: Names, table_name: str, shards: Sequence[int]) -> None:
    """Drop one packet of tables, whichever of them are there."""
    with connection.cursor() as cursor:
        cursor.execute(DROP.replace("TABLES", ", ".join(names.index(shard, table_name) for shard in shards)))


def _create_statement(table: IndexTable) -> str:
    types = {column: COLUMN_TYPES[field.kind] for column, field in zip(field_columns(table), table.fields, strict=True)}
    types |= dict.fromkeys(ref_columns(table), "BIGINT") | {"row_key": "BINARY(16)", "dead": "TINYINT"}
    shard_field = field_columns(table)[0]
    required = {shard_field, "row_key", "ref_0", "dead"}
    lines = [f"{column} {types[column]} {'NOT NULL' if column in required else 'NULL'}" for column in columns(table)]
    return CREATE.replace("COLUMNS", ", ".join(lines)).replace("SHARD_FIELD", shard_field)
