"""What a step has to know of one table: its partitions, and a column as it is. Read afresh, never kept."""

from __future__ import annotations

from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.wire.connections import rows

_TREE = """\
WITH RECURSIVE tree (oid, parent, level) AS (
  SELECT c.oid, NULL::oid, 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
  UNION ALL
  SELECT c.oid, i.inhparent, tree.level + 1
   FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
   JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition AND c.relkind IN ('r', 'p'))
SELECT tree.oid::int8, n.nspname, c.relname, c.relkind = 'p', tree.parent::int8, tree.level, c.reltuples::int8
 FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 ORDER BY tree.level, n.nspname, c.relname"""

# Since Postgres 18 attnotnull may stand for a constraint that is not validated yet.
_COLUMN = """\
SELECT a.attnum, format_type(a.atttypid, a.atttypmod), COALESCE(NULLIF(t.typbasetype, 0), t.oid) = 'uuid'::regtype,
  a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = a.attrelid AND c.contype = 'n'
    AND c.conkey = ARRAY[a.attnum] AND NOT c.convalidated),
  COALESCE(col_description(a.attrelid, a.attnum), '')
 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = %s AND a.attname = %s AND a.attnum > 0 AND NOT a.attisdropped"""

# The primary key, else the narrowest unique index that every row is in once.
_KEY = """\
SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
   WHERE k.place <= i.indnkeyatts ORDER BY k.place),
  ARRAY(SELECT format_type(a.atttypid, a.atttypmod) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
   WHERE k.place <= i.indnkeyatts ORDER BY k.place)
 FROM pg_index i
 WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
   WHERE k.place <= i.indnkeyatts AND NOT a.attnotnull)
 ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1"""


class Relation(NamedTuple):
    """A table or partition."""

    oid: int
    name: TableName
    is_partitioned: bool
    parent_oid: int | None
    level: int
    estimated_rows: int  #: As of the last ANALYZE; -1: never.


class PhysicalColumn(NamedTuple):
    """A column as the catalogue has it."""

    number: int
    type_name: str
    is_uuid: bool
    is_not_null: bool
    comment: str


class Key(NamedTuple):
    """Columns that name every row of a table once, and their types."""

    columns: tuple[str, ...]
    types: tuple[str, ...]


def tree(connection: Connection, table: TableName) -> list[Relation]:
    """The table and its partitions, the root first."""
    found = [
        Relation(oid, TableName(schema, name), *rest)
        for oid, schema, name, *rest in rows(connection, _TREE, (table.schema, table.name))
    ]
    if not found:
        raise InvalidLayout(f"There is no table {table}.", hint="Mend its name in the layout.")
    return found


def leaves(connection: Connection, table: TableName) -> list[Relation]:
    """Where the rows are: the table itself, or the lowest partitions."""
    return [relation for relation in tree(connection, table) if not relation.is_partitioned]


def find_column(connection: Connection, relation: Relation, name: str) -> PhysicalColumn | None:
    found = rows(connection, _COLUMN, (relation.oid, name))
    return PhysicalColumn(*found[0]) if found else None


def key_of(connection: Connection, relation: Relation) -> Key:
    found = rows(connection, _KEY, (relation.oid,))
    if not found:
        raise InvalidLayout(
            f"{relation.name} has no primary key, and no other unique index on columns that are NOT NULL.",
            hint="Create one: without it rows cannot be walked in batches.",
        )
    columns, types = found[0]
    return Key(tuple(columns), tuple(types))
