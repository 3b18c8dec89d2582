"""`LeafFile`: a table or partition as a file of blocks; and why tables cannot be walked by theirs.

An UPDATE writes a row anew, perhaps in another block, and capture logs it only where a mapped column changed. So a walk
needs a trigger of its own on each leaf, which notes what moves, and which is a part of what a leaf is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Before it Postgres read the whole table for a range of blocks.
OLDEST_VERSION = 140_000

_LEAVES = """
WITH mapped AS (
    SELECT DISTINCT c.oid, c.relkind, s.nspname, c.relname FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
    JOIN unnest(%s::text[], %s::text[]) AS wanted (nspname, relname) USING (nspname, relname)
), leaf AS (
    SELECT m.nspname, m.relname, l.relid::oid AS oid FROM mapped AS m
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(m.oid) AS l WHERE m.relkind = 'p' AND l.isleaf
    UNION ALL SELECT m.nspname, m.relname, m.oid FROM mapped AS m WHERE m.relkind <> 'p'
)
SELECT l.nspname, l.relname, s.nspname, c.relname, c.oid::bigint,
    pg_catalog.pg_relation_filenode(c.oid)::bigint,
    (SELECT ARRAY[t.oid::bigint, t.xmin::text::bigint] FROM pg_catalog.pg_trigger AS t
     WHERE t.tgrelid = c.oid AND t.tgname = %s AND t.tgenabled = 'A'),
    CASE WHEN c.relkind = 'r' THEN
        pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint ELSE 0 END,
    CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN c.reltuples / c.relpages END::float8
FROM leaf AS l JOIN pg_catalog.pg_class AS c ON c.oid = l.oid
JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace ORDER BY 1, 2, 3, 4
"""
_UNFIT = """
SELECT s.nspname, c.relname, CASE
    WHEN c.relkind NOT IN ('r', 'p') THEN 'is no ordinary table'
    WHEN a.amname <> 'heap' THEN 'is stored by ' || a.amname
    WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)
        THEN 'has tables that inherit it'
    WHEN c.relforcerowsecurity THEN 'has policies that hold for its owner'
    WHEN NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN 'is not owned by ' || current_user
        || ', which has to make a trigger on it (`tripstore schema grants` says how an operator becomes its owner)'
END
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam
WHERE c.oid = ANY (%s::bigint[]::oid[])
OR (s.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[])) ORDER BY 1, 2
"""
_MAY_CREATE = "SELECT current_user::text, pg_catalog.has_schema_privilege(%s, 'CREATE')"


#: Name, OID, file, and the trigger; as JSON has it.
LeafIdentity = tuple[str, int, int, list[int] | None]


class LeafFile(NamedTuple):
    """Where rows of a mapped table are."""

    table: TableName
    name: TableName
    oid: int
    filenode: int
    #: Notes what moves: its OID, and the number of the transaction that changed it last. None: there is none that
    #: fires always.
    trigger: list[int] | None
    blocks: int
    #: As of the last ANALYZE; None: never.
    rows_per_block: float | None

    @property
    def identity(self) -> LeafIdentity:
        """What stays as long as rows go from it, within it and to it under the eyes of one trigger.

        A trigger that was disabled and enabled again is as it was, but for the transaction that wrote it so.
        """
        return self.name.sql, self.oid, self.filenode, self.trigger


def find_leaves(connection: Connection, layout: Layout, trigger: str = "") -> list[LeafFile]:
    """All of them, as they are now; `trigger`: its name."""
    tables = sorted(layout.tables)
    named = [table.schema for table in tables], [table.name for table in tables]
    return [
        LeafFile(TableName(schema, table), TableName(leaf_schema, leaf), *rest)
        for schema, table, leaf_schema, leaf, *rest in rows(connection, _LEAVES, (*named, trigger))
    ]


def why_unfit(connection: Connection, leaves: Sequence[LeafFile]) -> str | None:
    """Why these cannot be walked by blocks on this connection; None: they can."""
    if connection.server_version < OLDEST_VERSION:
        return "Postgres has known ranges of blocks since version 14"
    ((role, may_create),) = rows(connection, _MAY_CREATE, (SCHEMA,))
    if not may_create:
        return f"{role} may make no table in schema {SCHEMA}"
    tables = sorted({leaf.table for leaf in leaves})
    named = [table.schema for table in tables], [table.name for table in tables]
    for schema, name, reason in rows(connection, _UNFIT, ([leaf.oid for leaf in leaves], *named)):
        if reason is not None:
            return f"{TableName(schema, name)} {reason}"
    return None
