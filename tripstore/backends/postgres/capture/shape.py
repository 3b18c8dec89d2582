"""`Shape`: what the live database says of a table that capture is installed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.wire.connections import rows

TABLE = """
SELECT c.oid, c.relkind::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = %s AND c.relname = %s
"""
NODES = """
SELECT t.relid::oid, s.nspname, c.relname, t.isleaf
FROM pg_catalog.pg_partition_tree(%s) t
JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
ORDER BY t.level, c.relname
"""
#: A domain is as its base type; an array as its element; a generated column is as those that it is made of.
COLUMNS = """
SELECT a.attname, CASE WHEN plain.typtype = 'e' THEN 'enum' ELSE plain.typname END, a.attgenerated::text,
  ARRAY(SELECT made.attname::text FROM pg_catalog.pg_attrdef d
        JOIN pg_catalog.pg_depend p ON p.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND p.objid = d.oid
        JOIN pg_catalog.pg_attribute made ON made.attrelid = p.refobjid AND made.attnum = p.refobjsubid
        WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND p.refobjid = a.attrelid AND made.attnum <> a.attnum
        ORDER BY made.attnum)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type base ON base.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_catalog.pg_type plain ON plain.oid = CASE WHEN base.typcategory = 'A' THEN base.typelem ELSE base.oid END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True, slots=True)
class TableNode:
    """The table, or one of its partitions, at whatever depth."""

    oid: int
    table: TableName
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is now."""

    table: TableName
    oid: int
    is_partitioned: bool
    nodes: tuple[TableNode, ...]  #: The table first.
    types: Mapping[str, str]  #: Base type names: of domains and of the elements of arrays too.
    made_of: Mapping[str, tuple[str, ...]]  #: Generated columns, and the columns they come from.

    @classmethod
    def find(cls, connection: Connection, table: TableName) -> Shape | None:
        """Return None when there is no such table."""
        found = rows(connection, TABLE, (table.schema, table.name))
        if not found:
            return None
        oid, kind = found[0]
        columns = rows(connection, COLUMNS, (oid,))
        nodes = rows(connection, NODES, (oid,)) if kind == "p" else [(oid, *table, True)]
        return cls(
            table,
            oid,
            kind == "p",
            tuple(TableNode(node, TableName(schema, name), leaf) for node, schema, name, leaf in nodes),
            {name: type_name for name, type_name, _, _ in columns},
            {name: tuple(bases) for name, _, generated, bases in columns if generated},
        )

    @classmethod
    def read(cls, connection: Connection, table: TableName) -> Shape:
        shape = cls.find(connection, table)
        if shape is None:
            raise InvalidLayout(f"There is no table {table}.", hint="Check the layout and legacy.postgres.")
        return shape

    def written(self, column: str) -> tuple[str, ...]:
        """The columns that a statement writes when this one changes: generated values are not known before a row is."""
        return self.made_of.get(column, (column,))
