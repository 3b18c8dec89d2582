"""About how many rows a table of Postgres has, with all of its partitions, without reading it."""

from __future__ import annotations

#: By its size of today, as dense as when it was analysed last; one that never was has so many in each page as the
#: second parameter says. (A table without partitions is in no tree.)
ABOUT_ROWS = """\
SELECT COALESCE(sum(pages.n * CASE WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples / c.relpages
    ELSE wanted.dense END), 0)::bigint
FROM (SELECT %s::pg_catalog.regclass AS name, %s AS dense) AS wanted, pg_catalog.pg_class AS c,
    pg_catalog.current_setting('block_size') AS block (size),
    LATERAL (SELECT pg_catalog.pg_relation_size(c.oid) / block.size::float8) AS pages (n)
WHERE c.relkind = 'r' AND (c.oid = wanted.name
    OR c.oid IN (SELECT leaf.relid FROM pg_catalog.pg_partition_tree(wanted.name) AS leaf))"""
