"""Partitions, known by oid: one that leaves, comes with rows, or left and came back has rows that capture never saw.

Postgres drops the clones of row triggers at DETACH and makes new ones at ATTACH. So the oids of its clones tell whether
a partition was away, however short the time. What is found is a breach: a numbered row in `tripstore.breach`. Only a
diff of everything that begins later, and ends without an open difference, answers for it.

The comparison is one function in Postgres. An event trigger calls it with each change, where a superuser let us make
one; `doctor`, the gates, `diff start` and a worker call it every time they look.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.function import SEARCH_PATH, Function
from tripstore.backends.postgres.capture.names import FIRST, LAST, LOGGED, in_schema, literal
from tripstore.backends.postgres.capture.shape import Shape, TableNode
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

LOOK_FUNCTION = "look_at_partitions"
EVENT_FUNCTION = "partitions_changed"

_OURS = " OR ".join(f"starts_with(g.tgname, {literal(prefix)})" for prefix in (FIRST, LOGGED, LAST))
#: Every partition as it is now: which clones of capture's triggers stand on it, and whether TRUNCATE meets one of ours.
#: No lock is taken: a session that holds a partition, to drop it, keeps no look waiting.
_NOW = f"""
WITH RECURSIVE tree (root, oid) AS (
    {{roots}}
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t
    JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending
), now AS (
    SELECT t.root, c.oid, c.oid::pg_catalog.regclass::text AS name, c.relkind = 'r' AS is_leaf,
        c.relfilenode AS filenode,
        ARRAY(SELECT g.oid FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid
            WHERE g.tgrelid = c.oid AND g.tgparentid <> 0
            AND f.pronamespace = '{SCHEMA}'::pg_catalog.regnamespace AND ({_OURS}) ORDER BY g.oid) AS clones,
        EXISTS (SELECT FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid
            WHERE g.tgrelid = c.oid AND f.pronamespace = '{SCHEMA}'::pg_catalog.regnamespace AND g.tgenabled = 'A'
            AND g.tgtype & 32 <> 0 AND pg_catalog.right(g.tgname::text, 8) = 'truncate') AS is_guarded
    FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
)"""
_OF_ALL = _NOW.format(roots="SELECT p.oid, p.oid FROM tripstore.partition p WHERE p.oid = p.root")

# Two looks at once: the second waits for the rows of the first, and finds them as they are by then. One breach.
_COMPARE = f"""{_OF_ALL}, gone AS (
    DELETE FROM tripstore.partition p WHERE NOT EXISTS (SELECT FROM now n WHERE n.oid = p.oid)
    RETURNING p.name || ' was detached or dropped' AS what
), changed AS (
    UPDATE tripstore.partition p SET clones = n.clones, root = n.root, name = n.name
    FROM now n WHERE n.oid = p.oid AND p.clones <> n.clones
    RETURNING p.name || ' was detached and attached again, or lost triggers' AS what
)
SELECT string_agg(each.what, '; ' ORDER BY each.what)
FROM (SELECT g.what FROM gone g UNION ALL SELECT c.what FROM changed c) AS each INTO said"""
# A statement of its own: no row is updated twice by one.
_TRUNCATED = f"""{_OF_ALL}, seen AS (
    UPDATE tripstore.partition p SET filenode = CASE WHEN NOT n.is_guarded THEN n.filenode END
    FROM (SELECT now.*, before.filenode AS filenode_before
        FROM now JOIN tripstore.partition before ON before.oid = now.oid) AS n
    WHERE n.oid = p.oid AND p.filenode = n.filenode_before AND (n.is_guarded OR n.filenode <> p.filenode)
    RETURNING p.name, n.filenode <> n.filenode_before AS is_other
)
SELECT string_agg(s.name || ' was truncated or rewritten before its triggers stood', '; ' ORDER BY s.name)
FROM seen s WHERE s.is_other INTO said"""
# Neither the numbers of transactions nor a snapshot order an ATTACH and a load. So any file that is not empty counts as
# rows, unless the partition was born one: ATTACH and DETACH write every column of the catalogue anew.
_IS_BORN = """
EXISTS (SELECT FROM pg_attribute own JOIN pg_attribute first ON first.attrelid = own.attrelid AND first.attnum = -1
    WHERE own.attrelid = {oid} AND own.attnum > 0 AND own.attinhcount > 0 AND own.xmin = first.xmin
    AND own.cmin = first.cmin AND own.xmax = 0 AND first.xmax = 0)"""
# `is_sure`: it had the clones before its first row. It was born a partition, as was each above it, up to one that is
# known. `was_rewritten`: since it was born, or by a transaction after that of ATTACH, which writes pg_class as well.
_NEW = f"""{_OF_ALL}, fresh AS (
    SELECT n.*, {_IS_BORN.format(oid="n.oid")} AS is_born FROM now n
    WHERE NOT EXISTS (SELECT FROM tripstore.partition p WHERE p.oid = n.oid)
), unsure AS (
    SELECT f.oid FROM fresh f WHERE NOT f.is_born
    UNION
    SELECT i.inhrelid FROM unsure u JOIN pg_inherits i ON i.inhparent = u.oid JOIN fresh f ON f.oid = i.inhrelid
)
SELECT f.*, f.oid NOT IN (SELECT u.oid FROM unsure u) AS is_sure, f.filenode <> f.oid AND (f.is_born OR NOT EXISTS (
    SELECT FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid WHERE c.oid = f.oid AND c.xmin = i.xmin
)) AS was_rewritten
FROM fresh f"""

_LOOK = f"""
DECLARE
  said text;
  whats text[];
  fresh record;
BEGIN
  {_COMPARE};
  whats := array_append(whats, said);
  {_TRUNCATED};
  whats := array_append(whats, said);
  FOR fresh IN {_NEW} LOOP
    INSERT INTO tripstore.partition (oid, root, name, clones, filenode)
    VALUES (fresh.oid, fresh.root, fresh.name, fresh.clones,
      CASE WHEN NOT fresh.is_guarded THEN fresh.filenode END)
    ON CONFLICT DO NOTHING;
    CONTINUE WHEN NOT FOUND OR NOT fresh.is_leaf;
    IF NOT fresh.is_sure AND pg_relation_size(fresh.oid) > 0 THEN
      whats := array_append(whats, fresh.name || ' was attached, and has rows that capture may never have seen');
    ELSIF fresh.was_rewritten THEN
      whats := array_append(whats, fresh.name || ' was truncated or rewritten before its triggers stood');
    END IF;
  END LOOP;
  said := array_to_string(whats, '; ');
  IF said <> '' THEN
    INSERT INTO tripstore.breach (what) VALUES (said);
  END IF;
END
"""

#: Of the transaction: it made or attached the partition, and holds it exclusively, so nothing is waited for.
_IS_HELD = """EXISTS (SELECT FROM pg_catalog.pg_locks l
    WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND l.relation = n.oid
    AND l.mode = 'AccessExclusiveLock' AND l.granted)"""
# Postgres clones row triggers alone. A partition that this very transaction made or attached gets the others as its
# root has them.
_LACKING = f"""{_OF_ALL}
SELECT n.name AS partition, g.tgname AS trigger, pg_catalog.obj_description(g.oid, 'pg_trigger') AS remark,
    replace(pg_catalog.pg_get_triggerdef(g.oid),
        format(' ON %s FOR EACH STATEMENT', g.tgrelid::pg_catalog.regclass),
        format(' ON %s FOR EACH STATEMENT', n.name)) AS statement
FROM now n JOIN pg_catalog.pg_trigger g ON g.tgrelid = n.root AND g.tgtype & 1 = 0 AND g.tgenabled = 'A'
JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid AND f.pronamespace = '{SCHEMA}'::pg_catalog.regnamespace
WHERE NOT n.is_guarded AND n.oid <> n.root AND {_IS_HELD}
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger own WHERE own.tgrelid = n.oid AND own.tgname = g.tgname)
ORDER BY 1, 2"""

# To enable a trigger is an ALTER TABLE, which calls the event trigger once more. No setting tells such a call from
# others, since any session may set it; the catalogue does: a trigger that was made and not enabled yet is there.
_IS_GUARDING = f"""EXISTS ({_OF_ALL}
SELECT FROM now n JOIN pg_catalog.pg_trigger g ON g.tgrelid = n.oid AND g.tgtype & 1 = 0 AND g.tgenabled = 'O'
JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid AND f.pronamespace = '{SCHEMA}'::pg_catalog.regnamespace
WHERE n.oid <> n.root AND {_IS_HELD})"""

# Whatever goes wrong here must not stop the company's own change: the next look finds what it did.
_CHANGED = f"""
DECLARE
  lacking record;
  enable text[];
BEGIN
  IF TG_TAG = 'ALTER TABLE' AND {_IS_GUARDING} THEN
    RETURN;
  END IF;
  IF TG_TAG = 'CREATE TABLE' AND NOT EXISTS (
    SELECT FROM pg_event_trigger_ddl_commands() d JOIN pg_inherits i ON i.inhrelid = d.objid
    WHERE d.classid = 'pg_class'::regclass) THEN
    RETURN;
  END IF;
  BEGIN
    FOR lacking IN {_LACKING} LOOP
      EXECUTE lacking.statement;
      EXECUTE format('COMMENT ON TRIGGER %I ON %s IS %L', lacking.trigger, lacking.partition, lacking.remark);
      enable := array_append(enable,
        format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', lacking.partition, lacking.trigger));
    END LOOP;
    FOR n IN 1 .. coalesce(cardinality(enable), 0) LOOP
      EXECUTE enable[n];
    END LOOP;
  EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'tripstore did not put triggers on a new partition: %', SQLERRM
      USING HINT = 'A worker does within seconds. Until then TRUNCATE of it is accepted.';
  END;
  PERFORM {in_schema(LOOK_FUNCTION)}();
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'tripstore did not look at the partitions: %', SQLERRM
    USING HINT = 'What you changed is changed. `tripstore doctor` looks again.';
END
"""

_LOOK_NOW = f"SELECT {in_schema(LOOK_FUNCTION)}()"
_HAS_LOOK = f"SELECT pg_catalog.to_regprocedure('{SCHEMA}.{LOOK_FUNCTION}()') IS NOT NULL"
# A lower number may be committed later. So what counts is how many there are to be seen: none ever goes.
_NEWEST = "SELECT (SELECT count(*) FROM tripstore.breach), at, what FROM tripstore.breach ORDER BY number DESC LIMIT 1"
_UNGUARDED = "SELECT oid FROM tripstore.partition WHERE root = %s AND filenode IS NOT NULL ORDER BY oid"
_IS_KNOWN = "SELECT EXISTS (SELECT FROM tripstore.partition WHERE oid = %s AND root = oid)"


class Breach(NamedTuple):
    """The newest moment at which rows may have come, gone or changed unseen."""

    #: How many there were by then.
    number: int
    at: datetime
    what: str


def partition_functions() -> list[Function]:
    return [
        Function(LOOK_FUNCTION, _LOOK, SEARCH_PATH, returns="void"),
        Function(EVENT_FUNCTION, _CHANGED, SEARCH_PATH, returns="event_trigger"),
    ]


def look_at_partitions(connection: Connection) -> Breach | None:
    """Compare partitions with what is known of them, and write down what is new; the newest breach there ever was.

    None where capture, of a version that looks, is not installed: then nothing is known that could have changed.
    """
    if not rows(connection, _HAS_LOOK)[0][0]:
        return None
    rows(connection, _LOOK_NOW)
    reach("partitions.looked")
    found = rows(connection, _NEWEST)
    return Breach(*found[0]) if found else None


def is_known(connection: Connection, shape: Shape) -> bool:
    """Whether the partitions of a table are compared."""
    return bool(rows(connection, _HAS_LOOK)[0][0]) and bool(rows(connection, _IS_KNOWN, (shape.oid,))[0][0])


def unguarded(connection: Connection, shape: Shape) -> list[TableNode]:
    """Partitions on which TRUNCATE meets no trigger of ours, as of the last look."""
    oids = {oid for (oid,) in rows(connection, _UNGUARDED, (shape.oid,))}
    return [node for node in shape.nodes if node.oid in oids]


def look_and_learn(shape: Shape) -> tuple[list[str], list[str]]:
    """What the packet that makes the triggers of a partitioned table begins and ends with, under its lock.

    The first finds what changed before; the second takes the clones as they are for those to be compared with.
    """
    learn = f"""\
INSERT INTO tripstore.partition AS p (oid, root, name, clones, filenode)
{_NOW.format(roots=f"SELECT {shape.oid}::pg_catalog.oid, {shape.oid}::pg_catalog.oid")}
SELECT n.oid, n.root, n.name, n.clones, CASE WHEN NOT n.is_guarded THEN n.filenode END FROM now n
ON CONFLICT (oid) DO UPDATE SET root = excluded.root, name = excluded.name, clones = excluded.clones,
    filenode = excluded.filenode"""
    return [_LOOK_NOW], [learn]
