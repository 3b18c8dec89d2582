"""`LiveCatalogue`: reads what the live database has, for some of its tables, in a handful of statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.filled import assigned
from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.layout.live import (
    KeyAction,
    LiveColumn,
    LiveForeignKey,
    LiveIndex,
    LiveTable,
    LiveTrigger,
    LiveType,
    TableKind,
    TypeKind,
)
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

SETTINGS = """
SELECT name, setting FROM pg_catalog.pg_settings
WHERE name IN ('server_version_num', 'server_encoding', 'fsync', 'full_page_writes', 'synchronous_commit')
ORDER BY name
"""

#: What else there is, for complaints about tables that are not.
NEIGHBOURS = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname !~ '^pg_' AND n.nspname <> ALL ('{information_schema,tripstore}')
ORDER BY n.nspname <> ALL (%s), n.nspname, c.relname LIMIT 2000
"""

#: The tables that have these names; the first and second array are schemas and names.
_GIVEN = """
SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN unnest(%s::text[], %s::text[]) AS wanted(nspname, relname) USING (nspname, relname)
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

TABLES = f"""
WITH given AS ({_GIVEN})
SELECT given.oid, given.nspname, given.relname, c.relkind, c.relpersistence, c.relrowsecurity,
    pg_catalog.row_security_active(c.oid),
    CASE WHEN c.relispartition THEN above.nspname END, CASE WHEN c.relispartition THEN above.relname END,
    ARRAY(SELECT coalesce(a.attname, '')::text
        FROM pg_catalog.pg_partitioned_table p
        CROSS JOIN unnest(p.partattrs::int2[]) WITH ORDINALITY AS k(number, place)
        LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = k.number AND k.number > 0
        WHERE p.partrelid = c.oid ORDER BY k.place),
    ARRAY(SELECT s.srrelid::pg_catalog.regclass::text FROM pg_catalog.pg_subscription_rel s
        WHERE s.srrelid = c.oid OR s.srrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(c.oid) AS t)
        ORDER BY 1)
FROM given JOIN pg_catalog.pg_class c ON c.oid = given.oid
LEFT JOIN LATERAL (
    SELECT n.nspname, parent.relname FROM pg_catalog.pg_inherits i
    JOIN pg_catalog.pg_class parent ON parent.oid = i.inhparent
    JOIN pg_catalog.pg_namespace n ON n.oid = parent.relnamespace
    WHERE i.inhrelid = c.oid ORDER BY i.inhseqno LIMIT 1
) AS above ON true
ORDER BY given.nspname, given.relname
"""

#: Everything that inherits from them, partitions and heirs alike, with what the statistics say.
DESCENDANTS = f"""
WITH RECURSIVE given AS ({_GIVEN}), below AS (
    SELECT given.oid AS root, given.oid AS oid FROM given
    UNION ALL
    SELECT below.root, i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid
)
SELECT below.root, n.nspname, c.relname, c.relkind, c.relispartition, below.root = below.oid,
    c.reltuples, coalesce(s.n_tup_ins, 0), coalesce(s.n_tup_upd, 0), coalesce(s.n_tup_del, 0), c.relpersistence
FROM below
JOIN pg_catalog.pg_class c ON c.oid = below.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_user_tables s ON s.relid = below.oid
ORDER BY n.nspname, c.relname
"""

#: Since Postgres 18 a column may be marked NOT NULL before its rows were looked at.
COLUMNS = f"""
WITH given AS ({_GIVEN})
SELECT given.oid, a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod),
    a.attnotnull AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_constraint o
        WHERE o.conrelid = a.attrelid AND o.contype = 'n' AND o.conkey = ARRAY[a.attnum] AND NOT o.convalidated),
    a.atthasdef AND a.attgenerated = '', a.attgenerated <> '', a.attidentity, a.atttypmod,
    coalesce(pg_catalog.starts_with(pg_catalog.col_description(a.attrelid, a.attnum), 'Added by tripstore'), false)
FROM given JOIN pg_catalog.pg_attribute a ON a.attrelid = given.oid
WHERE a.attnum > 0 AND NOT a.attisdropped
ORDER BY given.oid, a.attnum
"""

#: Types of columns, and the types that these are made of.
TYPES = f"""
WITH RECURSIVE given AS ({_GIVEN}), used(oid) AS (
    SELECT a.atttypid FROM given JOIN pg_catalog.pg_attribute a ON a.attrelid = given.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT part.oid FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid
    CROSS JOIN LATERAL (VALUES (t.typbasetype), (CASE WHEN t.typlen = -1 THEN t.typelem END)) AS part(oid)
    WHERE part.oid <> 0
)
SELECT t.oid, n.nspname, t.typname, t.typtype, t.typbasetype,
    CASE WHEN t.typcategory = 'A' AND t.typlen = -1 AND t.typtype = 'b' THEN t.typelem ELSE 0 END, t.typnotnull,
    t.typdelim, t.typtypmod
FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
ORDER BY t.oid
"""

UNIQUE_INDEXES = f"""
WITH given AS ({_GIVEN})
SELECT given.oid, c.relname, i.indimmediate, i.indisvalid AND i.indisready AND i.indislive, i.indpred IS NOT NULL,
    i.indisprimary,
    ARRAY(SELECT coalesce(a.attname, '')::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
        LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0
        WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM given JOIN pg_catalog.pg_index i ON i.indrelid = given.oid AND i.indisunique
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
ORDER BY given.oid, c.relname
"""

#: What ON DELETE SET NULL names of a key's columns; none: all of them. Postgres 14 has no such list.
_SET_COLUMNS = """
ARRAY(SELECT a.attname::text FROM pg_catalog.jsonb_array_elements_text(
        coalesce(nullif(pg_catalog.to_jsonb(o) -> 'confdelsetcols', 'null'), '[]')) AS k(number)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.number::int ORDER BY a.attnum)
"""

FOREIGN_KEYS = f"""
WITH given AS ({_GIVEN})
SELECT given.oid, o.conname, n.nspname, target.relname, o.confdeltype, o.confupdtype, o.condeferred,
    ARRAY(SELECT a.attname::text FROM unnest(o.conkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.number ORDER BY k.place),
    ARRAY(SELECT a.attname::text FROM unnest(o.confkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = o.confrelid AND a.attnum = k.number ORDER BY k.place),
    {_SET_COLUMNS}
FROM given JOIN pg_catalog.pg_constraint o ON o.conrelid = given.oid AND o.contype = 'f'
JOIN pg_catalog.pg_class target ON target.oid = o.confrelid
JOIN pg_catalog.pg_namespace n ON n.oid = target.relnamespace
WHERE o.conparentid = 0 OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_constraint whole WHERE whole.oid = o.conparentid AND whole.conrelid = o.conrelid)
ORDER BY given.oid, o.conname
"""

#: Those that each partition has by itself, which is as good as one of the whole.
PARTITION_KEYS = f"""
WITH RECURSIVE given AS ({_GIVEN}), below AS (
    SELECT given.oid AS root, given.oid AS oid FROM given
    UNION ALL
    SELECT below.root, i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
), leaf AS (
    SELECT below.root, below.oid FROM below JOIN pg_catalog.pg_class c ON c.oid = below.oid AND c.relkind <> 'p'
    WHERE below.oid <> below.root
), key AS (
    SELECT leaf.root, leaf.oid, o.conname, n.nspname, target.relname, o.confdeltype, o.confupdtype, o.condeferred,
        ARRAY(SELECT a.attname::text FROM unnest(o.conkey) WITH ORDINALITY AS k(number, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.number ORDER BY k.place) AS own,
        ARRAY(SELECT a.attname::text FROM unnest(o.confkey) WITH ORDINALITY AS k(number, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = o.confrelid AND a.attnum = k.number
            ORDER BY k.place) AS theirs,
        {_SET_COLUMNS} AS cleared
    FROM leaf JOIN pg_catalog.pg_constraint o ON o.conrelid = leaf.oid AND o.contype = 'f' AND o.conparentid = 0
    JOIN pg_catalog.pg_class target ON target.oid = o.confrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = target.relnamespace
)
SELECT key.root, min(key.conname), nspname, relname, confdeltype, confupdtype, bool_or(condeferred),
    own, theirs, cleared
FROM key GROUP BY key.root, nspname, relname, confdeltype, confupdtype, own, theirs, cleared
HAVING count(DISTINCT key.oid) = (SELECT count(*) FROM leaf WHERE leaf.root = key.root)
ORDER BY key.root, 2
"""

TRIGGERS = f"""
WITH given AS ({_GIVEN})
SELECT given.oid, t.tgname, n.nspname, p.proname, t.tgenabled, t.tgtype, t.tgqual IS NOT NULL, l.lanname, p.prosrc,
    t.tgargs
FROM given JOIN pg_catalog.pg_trigger t ON t.tgrelid = given.oid AND NOT t.tgisinternal
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
ORDER BY given.oid, t.tgname
"""

#: Bits of `pg_trigger.tgtype`.
_ROW, _BEFORE, _INSERT, _UPDATE = 1, 2, 4, 16


@dataclass(frozen=True)
class LiveCatalogue:
    """The tables that were asked for and are there, and the settings of their server."""

    tables: Mapping[TableName, LiveTable]
    settings: Mapping[str, str]
    neighbours: Sequence[TableName]  #: Read when one was not found; those of its schema first.

    @classmethod
    def read(cls, connection: Connection, tables: Collection[TableName]) -> LiveCatalogue:
        """Look at these tables; one that is not there is left out."""
        found = _Reader(connection, tables).tables()
        missing = {table.schema for table in tables if table not in found}
        neighbours = [TableName(*row) for row in rows(connection, NEIGHBOURS, (list(missing),))] if missing else []
        return cls(found, dict(rows(connection, SETTINGS)), neighbours)

    @classmethod
    def of_layout(cls, connection: Connection, layout: Layout) -> LiveCatalogue:
        """Look at the mapped tables, and at those that are looked up."""
        return cls.read(connection, layout.tables | {lookup.table for lookup in layout.lookups})


class _Reader:
    """Puts the answers of the statements together."""

    def __init__(self, connection: Connection, tables: Collection[TableName]) -> None:
        self._connection = connection
        self._given = ([table.schema for table in tables], [table.name for table in tables])

    def tables(self) -> dict[TableName, LiveTable]:
        columns, indexes, keys = self._columns(), self._indexes(), self._foreign_keys()
        triggers, descendants = self._triggers(), self._grouped(DESCENDANTS)
        tables: dict[TableName, LiveTable] = {}
        for oid, schema, name, kind, persistence, *security, above, parent, key, subscribed in self._ask(TABLES):
            has_security, hides_rows = security
            below = descendants[oid]
            others = [row for row in below if not row[4]]
            partitions = [row for row in others if row[3]]
            estimates = [row[5] for row in below if row[5] >= 0 and row[2] != TableKind.PARTITIONED]
            tables[TableName(schema, name)] = LiveTable(
                name=TableName(schema, name),
                kind=TableKind(kind),
                persistence=persistence,
                partition_of=None if parent is None else TableName(above, parent),
                partition_key=tuple(key),
                leaves=tuple(TableName(*row[:2]) for row in partitions if row[2] != TableKind.PARTITIONED),
                foreign_leaves=tuple(TableName(*row[:2]) for row in partitions if row[2] == TableKind.FOREIGN_TABLE),
                unlogged_leaves=tuple(TableName(*row[:2]) for row in partitions if row[9] == "u"),
                heirs=tuple(TableName(*row[:2]) for row in others if not row[3]),
                has_row_security=has_security,
                hides_rows=hides_rows,
                subscribed=tuple(subscribed),
                columns=columns[oid],
                unique_indexes=tuple(indexes[oid]),
                foreign_keys=tuple(keys[oid]),
                triggers=tuple(triggers[oid]),
                rows=int(sum(estimates)) if estimates else None,
                inserted=sum(row[6] for row in below),
                updated=sum(row[7] for row in below),
                deleted=sum(row[8] for row in below),
            )
        return tables

    def _columns(self) -> dict[int, dict[str, LiveColumn]]:
        types = self._types()
        found: dict[int, dict[str, LiveColumn]] = defaultdict(dict)
        for oid, name, type_oid, *said, identity, modifier, is_added in self._ask(COLUMNS):
            shown, not_null, has_default, is_generated = said
            of = replace(types[type_oid], modifier=modifier)
            is_identity, is_always = identity != "", identity == "a"
            found[oid][name] = LiveColumn(
                name, of, shown, not_null, has_default, is_generated, is_identity, is_always, is_added
            )
        return found

    def _types(self) -> dict[int, LiveType]:
        known = {row[0]: row[1:] for row in self._ask(TYPES)}

        def made(oid: int) -> LiveType:
            schema, name, kind, base, element, not_null, delimiter, modifier = known[oid]
            return LiveType(
                schema,
                name,
                TypeKind(kind),
                made(element) if element else None,
                replace(made(base), modifier=modifier) if base else None,
                not_null,
                delimiter,
            )

        return {oid: made(oid) for oid in known}

    def _indexes(self) -> dict[int, list[LiveIndex]]:
        found: dict[int, list[LiveIndex]] = defaultdict(list)
        for oid, name, is_immediate, is_valid, is_partial, is_primary, columns in self._ask(UNIQUE_INDEXES):
            found[oid].append(LiveIndex(name, tuple(columns), is_immediate, is_valid, is_partial, is_primary))
        return found

    def _foreign_keys(self) -> dict[int, list[LiveForeignKey]]:
        found: dict[int, list[LiveForeignKey]] = defaultdict(list)
        every = [*self._ask(FOREIGN_KEYS), *self._ask(PARTITION_KEYS)]
        for oid, name, schema, target, on_delete, on_update, deferred, own, theirs, cleared in every:
            key = LiveForeignKey(
                name,
                tuple(own),
                TableName(schema, target),
                tuple(theirs),
                KeyAction(on_delete),
                KeyAction(on_update),
                deferred,
                tuple(cleared or own),
            )
            found[oid].append(key)
        return found

    def _triggers(self) -> dict[int, list[LiveTrigger]]:
        found: dict[int, list[LiveTrigger]] = defaultdict(list)
        for oid, name, schema, function, enabled, bits, has_condition, *text in self._ask(TRIGGERS):
            is_row, is_before, on_insert, on_update = (bool(bits & bit) for bit in (_ROW, _BEFORE, _INSERT, _UPDATE))
            fills = is_row and is_before and enabled != "D" and schema != SCHEMA
            columns = _assigned(function, has_condition, *text) if fills else {}
            found[oid].append(
                LiveTrigger(
                    name, TableName(schema, function), enabled, is_row, is_before, on_insert, on_update, columns
                )
            )
        return found

    def _grouped(self, statement: str) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for oid, *rest in self._ask(statement):
            found[oid].append(tuple(rest))
        return found

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return rows(self._connection, statement, self._given)


def _assigned(function: str, has_condition: bool, language: str, source: str, arguments: memoryview) -> dict[str, bool]:
    """What a trigger assigns; one with a WHEN never always."""
    given = [text.decode() for text in bytes(arguments).split(b"\0")]
    return {name: each and not has_condition for name, each in assigned(language, source, function, given).items()}
