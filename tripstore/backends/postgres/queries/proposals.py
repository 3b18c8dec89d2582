"""Indexes of Postgres that queries lack: without one a query reads a whole table. Proposed, never made.

An index query narrows by its shard field: by the physical column that holds it, or for a looked-up field by the other
table's UUID and the column with the key. All other cells of a row are found by its row key, in child tables by row key
and number: the unique index that `schema apply` makes there serves for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, TableName, quoted
from tripstore.backends.postgres.queries.physical import PhysicalTypes
from tripstore.backends.postgres.queries.sources import source_of
from tripstore.backends.postgres.wire.connections import rows

CATALOGUE_SECONDS = 30.0

#: An index of other collation than its column's finds no text; a partial or half-built one not all rows.
_LEADING = """
SELECT n.nspname, c.relname, a.attname
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    AND a.attcollation = i.indcollation[0]
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname IN ('btree', 'hash')
WHERE i.indisvalid AND i.indisready AND i.indpred IS NULL
ORDER BY 1, 2, 3
"""
#: Partitioned tables, each with its lowest partitions.
_PARTITIONED = """
WITH RECURSIVE tree(root, oid) AS (
    SELECT c.oid, c.oid FROM pg_catalog.pg_class c WHERE c.relkind = 'p'
    UNION ALL
    SELECT tree.root, i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT rn.nspname, r.relname,
    pg_catalog.array_agg(ln.nspname::text ORDER BY ln.nspname, l.relname) FILTER (WHERE l.relkind = 'r'),
    pg_catalog.array_agg(l.relname::text ORDER BY ln.nspname, l.relname) FILTER (WHERE l.relkind = 'r')
FROM tree
JOIN pg_catalog.pg_class r ON r.oid = tree.root JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
JOIN pg_catalog.pg_class l ON l.oid = tree.oid JOIN pg_catalog.pg_namespace ln ON ln.oid = l.relnamespace
GROUP BY 1, 2 ORDER BY 1, 2
"""


class Searched(NamedTuple):
    """A column that rows are looked for by."""

    table: TableName
    column: str


@dataclass(frozen=True)
class LiveIndexes:
    """What a live database finds rows by."""

    types: PhysicalTypes
    leading: frozenset[Searched]  #: Columns that lead an index.
    partitions: Mapping[TableName, tuple[TableName, ...]]  #: The lowest ones of each partitioned table.

    @classmethod
    def read(cls, connection: Connection, layout: Layout) -> LiveIndexes:
        def run(sql: str, parameters: Sequence[Any], deadline: Deadline) -> Sequence[Sequence[Any]]:
            return rows(connection, sql, parameters)

        return cls(
            PhysicalTypes.read(run, layout, Deadline(CATALOGUE_SECONDS)),
            frozenset(Searched(TableName(schema, table), name) for schema, table, name in rows(connection, _LEADING)),
            {
                TableName(schema, name): tuple(map(TableName, schemas or (), names or ()))
                for schema, name, schemas, names in rows(connection, _PARTITIONED)
            },
        )


@dataclass(frozen=True, slots=True)
class IndexProposal:
    """An index that queries to these indexes of ours would find their rows by."""

    searched: Searched
    needed_by: tuple[str, ...]
    partitions: tuple[TableName, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """They block no session. Of a partitioned table Postgres builds no index CONCURRENTLY, but takes what is there
        on its partitions."""
        table, column = self.searched
        last = f"CREATE INDEX{'' if self.partitions else ' CONCURRENTLY'} ON {table.sql} ({quoted(column)})"
        built = (f"CREATE INDEX CONCURRENTLY ON {each.sql} ({quoted(column)})" for each in self.partitions)
        return (*built, last)


@dataclass(frozen=True, slots=True)
class Unsearchable:
    """An index whose shard field no index of Postgres can find: each query reads all cells of the column."""

    index: str
    column: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proposals:
    """What `schema plan` proposes, and what it warns of."""

    missing: tuple[IndexProposal, ...]
    unsearchable: tuple[Unsearchable, ...]


def proposed_indexes(layout: Layout, definitions: Iterable[IndexDefinition], live: LiveIndexes) -> Proposals:
    """What Postgres needs so that every index query finds its rows without reading a whole table."""
    needed: defaultdict[Searched, list[str]] = defaultdict(list)
    unsearchable = []
    for definition in definitions:
        reason = _unsearchable(layout, definition, live.types)
        if reason is not None:
            column = definition.columns[0].name
            unsearchable.append(Unsearchable(definition.name, column, definition.shard_field.name, reason))
        for searched in _searched(layout, definition, live.types):
            if searched not in live.leading:
                needed[searched].append(definition.name)
    missing = [IndexProposal(each, tuple(names), live.partitions.get(each.table, ())) for each, names in needed.items()]
    return Proposals(tuple(missing), tuple(unsearchable))


def unkeyed_tables(layout: Layout, live: LiveIndexes) -> list[Searched]:
    """Row keys of child tables that no index leads with: `schema apply` makes one, and the company may drop it."""
    keys = [Searched(column.table, column.uuid) for column in layout.children]
    return [key for key in dict.fromkeys(keys) if key not in live.leading]


def _searched(layout: Layout, definition: IndexDefinition, types: PhysicalTypes) -> Iterator[Searched]:
    shard, name = source_of(definition.columns[0], layout, types), definition.shard_field.name
    if shard.mapped is None or name not in shard.fields or not shard.fields[name].is_searchable:
        return
    field = shard.mapped.fields_by_name[name]
    yield Searched(shard.mapped.table, field.column)
    if field.lookup is not None:
        yield Searched(field.lookup.table, field.lookup.value)


def _unsearchable(layout: Layout, definition: IndexDefinition, types: PhysicalTypes) -> str | None:
    column, field = definition.columns[0], definition.shard_field
    if column.name != LEGACY_ID and column.name not in layout.columns:
        return f"the layout does not map {column.name}"
    source = source_of(column, layout, types)
    assert source.mapped is not None  # the layout knows it
    mapped = source.mapped.fields_by_name.get(field.name)
    if mapped is None:
        return f"no physical column of {source.mapped.table} holds it"
    stored = source.fields.get(field.name)
    if stored is None or not stored.is_searchable:
        return f"{source.mapped.table}.{mapped.column} does not compare as {field.kind.value}s do"
    return None
