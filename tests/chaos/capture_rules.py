"""What capture owes to a writer, as SQL over witnesses, changes and tables; and all that is known of a breach.

Queue and log together hold each committed change once and no other, one body for each key (I8, I2), and end as the
tables do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.capture_actors import Entry, Journal
from tests.legacy import Legacy
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.backends.postgres.wire.connections import rows

_FIELDS = "row_key, column_name, ref_key, id, xid, at, row, previous, origin"
VIEW = f"""
CREATE VIEW changes AS SELECT 'queue' AS place, {_FIELDS} FROM tripstore.queue
UNION ALL SELECT 'log', {_FIELDS} FROM tripstore.log;
CREATE VIEW captured AS SELECT row_key, column_name,
  row::json ->> CASE column_name WHEN 'BASE' THEN 'status' WHEN 'NOTES' THEN 'text' ELSE 'result' END AS token
FROM changes WHERE row IS NOT NULL;
-- The highest of each cell's ref keys; of facts all those above the last tombstone.
CREATE VIEW latest AS
SELECT row_key, column_name, ref_key, row::json ->> 'status' AS token FROM (
  SELECT DISTINCT ON (row_key) * FROM changes WHERE column_name = 'BASE' ORDER BY row_key, ref_key DESC) AS base
WHERE row IS NOT NULL
UNION ALL
SELECT row_key, column_name, ref_key, row::json ->> 'text' FROM (
  SELECT DISTINCT ON (row_key, ref_key >> {VERSION_BITS}) * FROM changes WHERE column_name = 'NOTES'
  ORDER BY row_key, ref_key >> {VERSION_BITS}, ref_key DESC) AS notes
WHERE row IS NOT NULL
UNION ALL
SELECT row_key, column_name, ref_key, row::json ->> 'result' FROM changes c WHERE column_name = 'STATUS'
  AND row IS NOT NULL AND NOT EXISTS (SELECT FROM changes t WHERE t.column_name = 'STATUS' AND t.row IS NULL
    AND t.row_key = c.row_key AND t.ref_key > c.ref_key);
CREATE VIEW present AS
SELECT trip_uuid AS row_key, 'BASE' AS column_name, base_version AS ref_key, status AS token FROM trips
UNION ALL SELECT trip_uuid, 'NOTES', n << {VERSION_BITS} | note_version, text FROM notes
UNION ALL SELECT trip_uuid, 'STATUS', attempt_no, result FROM attempts
"""

#: Each answers row key, column name, ref key (NULL: not known) and what there is to say. Broken when it answers.
RULES = {
    "committed and not captured": """
SELECT row_key, column_name, NULL, token FROM (
  SELECT row_key, column_name, token FROM witness EXCEPT ALL SELECT row_key, column_name, token FROM captured) AS lost
""",
    "captured and not committed": """
SELECT row_key, column_name, NULL, token FROM (
  SELECT row_key, column_name, token FROM captured EXCEPT ALL SELECT row_key, column_name, token FROM witness) AS added
""",
    "two changes under one key": """
SELECT row_key, column_name, ref_key, count(*) || ' changes, bodies ' || count(DISTINCT row) FROM changes
GROUP BY 1, 2, 3 HAVING count(*) > 1
""",
    "the latest change is not in the table": "TABLE latest EXCEPT ALL TABLE present",
    "the table is not the latest change": "TABLE present EXCEPT ALL TABLE latest",
    # Each change says what it replaced: nothing is skipped. Facts do not replace each other.
    "the chain of versions is broken": f"""
SELECT row_key, column_name, ref_key, format('previous %s, before it %s', previous, before) FROM (
  SELECT *, lag(ref_key) OVER (PARTITION BY row_key, column_name,
    CASE column_name WHEN 'NOTES' THEN ref_key >> {VERSION_BITS} ELSE 0 END ORDER BY ref_key) AS before
  FROM changes WHERE column_name <> 'STATUS') AS chain
WHERE previous IS DISTINCT FROM before
""",
}

#: What Postgres itself promises at any moment, and capture rests on: a note has its trip, and a trip one of a number.
OF_POSTGRES = """
SELECT 'without its trip', trip_uuid::text, n, ARRAY[xmin::text], ARRAY[xmax::text], ARRAY[ctid::text]
FROM notes WHERE NOT EXISTS (SELECT FROM trips WHERE trips.id = notes.trip_id)
UNION ALL
SELECT 'twice', trip_uuid::text, n, array_agg(xmin::text), array_agg(xmax::text), array_agg(ctid::text)
FROM notes GROUP BY trip_uuid, n HAVING count(*) > 1
"""

#: What there is of one row key, everywhere; and when.
PLACES = {
    "witness": "SELECT at, column_name, token, xid FROM witness WHERE row_key = %s",
    "changes": "SELECT at, place, column_name, ref_key, previous, xid, id, origin, row FROM changes WHERE row_key = %s",
    "tomb": "SELECT NULL, column_name, n, ref_key, xmin FROM tripstore.tomb WHERE row_key = %s",
    "kept": "SELECT NULL, column_name, n, ref_key, xmin FROM tripstore.kept WHERE row_key = %s",
    "cell": "SELECT NULL, column_name, ref_key, convert_from(body, 'UTF8') FROM tripstore.cell WHERE row_key = %s",
    "trips": "SELECT NULL, t.*, t.xmin, t.ctid FROM trips AS t WHERE trip_uuid = %s",
    "notes": "SELECT NULL, t.*, t.xmin, t.ctid, t.tableoid::regclass FROM notes AS t WHERE trip_uuid = %s",
    "attempts": "SELECT NULL, t.*, t.xmin, t.ctid FROM attempts AS t WHERE trip_uuid = %s",
}
#: When the change was made that a breach is about.
MOMENTS = """
SELECT at FROM changes WHERE row_key = %(key)s AND column_name = %(column)s AND ref_key = %(ref_key)s
UNION ALL SELECT at FROM witness WHERE row_key = %(key)s AND token = %(token)s
UNION ALL SELECT c.at FROM changes c WHERE row_key = %(key)s AND column_name = %(column)s AND %(ref_key)s IS NULL
  AND c.row LIKE '%%' || %(token)s || '%%'
"""
#: The whole of it is long: a message has what happened around the moment.
AROUND = timedelta(seconds=0.3)
LINES = 400


class Breach(NamedTuple):
    """One example of a broken rule."""

    row_key: str
    column_name: str
    ref_key: int | None
    what: str


def wrong(legacy: Legacy) -> dict[str, list[Breach]]:
    """Which rules are broken, with examples; empty when capture holds what was committed. All of one snapshot."""
    connection = legacy.connect(isolation="REPEATABLE READ")
    try:
        return _wrong(connection)
    finally:
        connection.close()


def check(legacy: Legacy, folder: Path) -> None:
    """Fail with all that is known of what is wrong: places of the row, and the journals of who wrote it."""
    connection = legacy.connect(isolation="REPEATABLE READ")
    try:
        broken = _wrong(connection)
        evidence = "\n".join(_evidence(connection, broken, folder)) if broken else ""
    finally:
        connection.close()
    assert not broken, evidence


def _wrong(connection: Connection) -> dict[str, list[Breach]]:
    found = {rule: [Breach(*row) for row in rows(connection, query)] for rule, query in RULES.items()}
    return {rule: breaches for rule, breaches in found.items() if breaches}


def _evidence(connection: Connection, broken: dict[str, list[Breach]], folder: Path) -> Iterator[str]:
    for rule, breaches in broken.items():
        yield f"{rule}: {len(breaches)}"
        yield from (f"  {breach}" for breach in breaches[:10])
    journal = sorted(Journal.entries(folder))
    shown = {breach.row_key: breach for breaches in broken.values() for breach in breaches[:2]}
    for row_key, breach in shown.items():
        asked = {"key": row_key, "column": breach.column_name, "ref_key": breach.ref_key, "token": breach.what}
        moments: list[datetime] = [at for (at,) in rows(connection, MOMENTS, asked)]
        lines = list(_lines(connection, row_key, journal))
        (folder / f"{row_key}.evidence").write_text("\n".join(f"{at} {line}" for at, line in lines))
        near = [(at, line) for at, line in lines if at is None or any(abs(at - each) < AROUND for each in moments)]
        yield f"\n{breach} at {', '.join(map(str, moments))}; all of it is in {folder}"
        yield from (f"{str(at.time()) if at else '':15} {line}" for at, line in near[:LINES])


def _lines(connection: Connection, row_key: str, journal: Sequence[Entry]) -> list[tuple[datetime | None, str]]:
    """What every place says of a row key, and whole transactions of those who wrote it, in the order of time."""
    found: list[tuple[datetime | None, str]] = []
    for place, query in PLACES.items():
        found += [(at, f"{place} {_shown(values)}") for at, *values in rows(connection, query, (row_key,))]
    touched = {(entry.writer, entry.transaction) for entry in journal if entry.key == row_key}
    for entry in journal:
        if (entry.writer, entry.transaction) in touched and entry.key in (row_key, ""):
            at = datetime.fromtimestamp(entry.at).astimezone()
            who = f"{entry.writer} pid {entry.pid} #{entry.transaction}"
            found.append((at, f"journal {who}: {entry.event} {entry.detail}"))
    return sorted(found, key=lambda line: (line[0] is not None, line[0] and line[0].timestamp(), line[1]))


def _shown(values: Sequence[Any]) -> str:
    return " | ".join(str(value) for value in values)
