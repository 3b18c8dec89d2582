"""Indexes of Postgres that index queries lack: without one a query reads a whole table. Proposed, never made.

A query narrows by its shard field: by the physical column that holds it, or for a looked-up field by the other table's
UUID and the column with the key. The cells of all other source columns are found by the row key's UUID.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.deadline import Deadline
from schemaless_core.indexes.definition import IndexDefinition
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
_PARTITIONED = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'p' ORDER BY 1, 2
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
    partitioned: frozenset[TableName]

    @classmethod
    def read(cls, connection: Connection, layout: Layout) -> LiveIndexes:
        def run(sql: str, parameters: Sequence[Any], deadline: Deadline) -> Sequence[Sequence[Any]]:
            return rows(connection, sql, parameters)

        return cls(
            PhysicalTypes.read(run, layout, Deadline(CATALOGUE_SECONDS)),
            frozenset(Searched(TableName(schema, table), name) for schema, table, name in rows(connection, _LEADING)),
            frozenset(TableName(*found) for found in rows(connection, _PARTITIONED)),
        )


@dataclass(frozen=True, slots=True)
class IndexProposal:
    """An index that queries to these indexes of ours would find their rows by."""

    searched: Searched
    needed_by: tuple[str, ...]
    is_partitioned: bool = False

    @property
    def statement(self) -> str:
        """Locks nobody out, unless the table is partitioned: there Postgres has no CONCURRENTLY."""
        how = "" if self.is_partitioned else " CONCURRENTLY"
        return f"CREATE INDEX{how} ON {self.searched.table.sql} ({quoted(self.searched.column)})"


@dataclass(frozen=True, slots=True)
class Unsearchable:
    """An index whose shard field no index of Postgres can find: each query reads all cells of the column."""

    index: str
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
            unsearchable.append(Unsearchable(definition.name, definition.shard_field.name, reason))
        for searched in dict.fromkeys(_searched(layout, definition, live.types)):
            if searched not in live.leading:
                needed[searched].append(definition.name)
    missing = [IndexProposal(each, tuple(names), each.table in live.partitioned) for each, names in needed.items()]
    return Proposals(tuple(missing), tuple(unsearchable))


def _searched(layout: Layout, definition: IndexDefinition, types: PhysicalTypes) -> Iterator[Searched]:
    shard = source_of(definition.columns[0], layout, types)
    stored = shard.fields.get(definition.shard_field.name)
    if stored is not None and stored.is_searchable and shard.mapped is not None:
        yield Searched(shard.mapped.table, stored.column)
        if stored.lookup is not None:
            yield Searched(stored.lookup.table, stored.lookup.value)
    # The cells of a parent that is searched stand beside what was found; a child's latest row must be found again.
    others = definition.columns[1:] if shard.mapped is not None and not shard.mapped.is_child else definition.columns
    for column in others:
        mapped = source_of(column, layout, types).mapped
        if mapped is not None:
            yield Searched(mapped.table, mapped.uuid)


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
