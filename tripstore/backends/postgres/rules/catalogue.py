"""Reads what the catalogue says of the mapped tables' columns and constraints, as plain documents.

Types are those below all domains; a domain's length, checks and NOT NULL are the column's. Everything is as of now: a
constraint that was never validated holds for new rows, one that is not enforced (Postgres 18) for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schemaless_core.cell.canonical import Json
from tripstore.backends.postgres.layout.layout import TableName

RowsOf = Callable[[str, Any], list[Any]]

_GIVEN = """
SELECT c.oid, n.nspname, c.relname
FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[]) AS wanted(nspname, relname)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = wanted.nspname
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = wanted.relname
"""

COLUMNS = f"""
WITH RECURSIVE given AS ({_GIVEN}), below AS (
    SELECT given.nspname, given.relname, a.attname, a.atttypid AS type, a.atttypmod AS modifier,
        a.attnotnull AS not_null, a.attcollation AS collation, ARRAY[]::pg_catalog.text[] COLLATE "C" AS checks
    FROM given JOIN pg_catalog.pg_attribute AS a ON a.attrelid = given.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT below.nspname, below.relname, below.attname, t.typbasetype, t.typtypmod, below.not_null OR t.typnotnull,
        below.collation, (below.checks || ARRAY(
            SELECT pg_catalog.pg_get_expr(k.conbin, 0) FROM pg_catalog.pg_constraint AS k
            WHERE k.contypid = t.oid AND k.contype = 'c' ORDER BY k.conname)) COLLATE "C"
    FROM below JOIN pg_catalog.pg_type AS t ON t.oid = below.type AND t.typtype = 'd'
)
SELECT below.nspname, below.relname, below.attname, n.nspname = 'pg_catalog', t.typname, t.typtype,
    pg_catalog.format_type(below.type, below.modifier), below.not_null, below.checks,
    ARRAY(SELECT e.enumlabel::pg_catalog.text FROM pg_catalog.pg_enum AS e
        WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
    coalesce((SELECT c.collisdeterministic FROM pg_catalog.pg_collation AS c WHERE c.oid = below.collation), true)
FROM below
JOIN pg_catalog.pg_type AS t ON t.oid = below.type AND t.typtype <> 'd'
JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
ORDER BY below.nspname, below.relname, below.attname
"""

CHECKS = f"""
WITH given AS ({_GIVEN})
SELECT given.nspname, given.relname, k.conname, pg_catalog.pg_get_expr(k.conbin, k.conrelid),
    ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) ORDER BY a.attnum)
FROM given JOIN pg_catalog.pg_constraint AS k ON k.conrelid = given.oid AND k.contype = 'c'
WHERE (pg_catalog.to_jsonb(k) ->> 'conenforced') IS DISTINCT FROM 'false'
ORDER BY given.nspname, given.relname, k.conname
"""

#: Unique indexes, foreign keys, exclusions and the company's own triggers, with the columns that they are about. What a
#: foreign key leads to is an array: schema, table, columns in the order of its own.
OTHERS = f"""
WITH given AS ({_GIVEN})
SELECT given.nspname, given.relname, 'unique', x.relname,
    ARRAY(SELECT coalesce(a.attname, '')::pg_catalog.text
        FROM unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k(number, place)
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0
        WHERE k.place <= i.indnkeyatts ORDER BY k.place),
    NULL, i.indpred IS NOT NULL, NULL::pg_catalog.text[]
FROM given JOIN pg_catalog.pg_index AS i ON i.indrelid = given.oid AND i.indisunique AND i.indisready
JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
UNION ALL
SELECT given.nspname, given.relname, CASE k.contype WHEN 'f' THEN 'foreign key' ELSE 'exclusion' END, k.conname,
    ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) ORDER BY a.attnum),
    CASE k.contype WHEN 'f' THEN k.confrelid::pg_catalog.regclass::pg_catalog.text END, false,
    CASE k.contype WHEN 'f' THEN ARRAY(
        SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = k.confrelid
    ) || ARRAY(SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c WHERE c.oid = k.confrelid)
    || ARRAY(SELECT a.attname::pg_catalog.text
        FROM unnest(k.confkey) WITH ORDINALITY AS to_key(number, place)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = to_key.number
        ORDER BY to_key.place) END
FROM given JOIN pg_catalog.pg_constraint AS k ON k.conrelid = given.oid AND k.contype IN ('f', 'x')
WHERE (k.conparentid = 0 OR k.contype = 'x') AND (pg_catalog.to_jsonb(k) ->> 'conenforced') IS DISTINCT FROM 'false'
UNION ALL
SELECT given.nspname, given.relname, 'trigger', t.tgname, ARRAY[]::pg_catalog.text[], NULL, false, NULL
FROM given JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = given.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace AND n.nspname <> 'tripstore'
ORDER BY 1, 2, 3, 4
"""


def read_tables(rows_of: RowsOf, tables: Sequence[TableName]) -> dict[str, Json]:
    """A document of each table, by its name as it stands in SQL; one that is not there has none."""
    given = ([table.schema for table in tables], [table.name for table in tables])
    found: dict[str, dict[str, Any]] = {}

    def of(schema: str, name: str) -> dict[str, Any]:
        return found.setdefault(TableName(schema, name).sql, {"columns": {}, "checks": [], "others": []})

    for schema, name, column, is_built_in, type_name, kind, shown, not_null, checks, labels, exact in rows_of(
        COLUMNS, given
    ):
        of(schema, name)["columns"][column] = {
            "type": type_name if is_built_in else None,
            "shown": shown,
            "not_null": not_null,
            "checks": list(checks),
            "labels": list(labels) if kind == "e" else None,
            "is_exact": exact,
        }
    for schema, name, constraint, expression, columns in rows_of(CHECKS, given):
        of(schema, name)["checks"].append({"name": constraint, "expression": expression, "columns": list(columns)})
    for schema, name, kind, constraint, columns, target, is_partial, leads_to in rows_of(OTHERS, given):
        other = {"kind": kind, "name": constraint, "columns": list(columns), "target": target, "is_partial": is_partial}
        of(schema, name)["others"].append(other | ({} if leads_to is None else {"leads_to": list(leads_to)}))
    return dict(found)
