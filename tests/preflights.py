"""Statements of a company, each with what the preflight says of it, and what Postgres does to it in each phase."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg2
import yaml
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.layouts import document
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.capture.verify import verify
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.phase import Phase

#: As a configuration has it, which is sorted.
LAYOUT = load_layout(yaml.safe_load(yaml.safe_dump(document())))

#: Beside the company of `tests.layouts`: what only a database knows.
MORE = """
ALTER TABLE trips ADD COLUMN rider_id bigint REFERENCES users (id) ON DELETE SET NULL;
CREATE TABLE promotions (code text PRIMARY KEY, n int);
CREATE TABLE trip_archive (id bigint, driver_id bigint, status trip_status, fare_amount numeric);
CREATE TABLE reports (id bigint PRIMARY KEY, trip_id bigint REFERENCES trips (id));
CREATE TABLE pings (n int);
CREATE TABLE wishes (n int);
CREATE RULE granted AS ON INSERT TO wishes DO ALSO UPDATE trips SET request_at = now() WHERE id = NEW.n;
CREATE VIEW open_trips AS SELECT id, status FROM trips WHERE status = 'requested';
CREATE FUNCTION bill(trip bigint) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN UPDATE trips SET fare_amount = 1 WHERE id = trip; END $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 500, 'ping'); RETURN NULL; END $$;
CREATE TRIGGER noted AFTER INSERT ON pings FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO users (id, user_uuid) SELECT n, gen_random_uuid() FROM generate_series(1, 9) n;
INSERT INTO trips (driver_id, rider_id, fare_amount) SELECT 1 + n % 3, 7, n FROM generate_series(1, 5) n;
INSERT INTO billing_attempts (trip_id, attempt_no, result, amount) VALUES (1, 1, 'refused', 1.10), (2, 1, 'ok', 2);
INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'one'), (1, 2, 'two'), (2, 1, 'three');
INSERT INTO promotions VALUES ('spring', 1);
"""

INDEX = {
    "table": "driver_index",
    "datastore": "trips",
    "column_defs": [
        {
            "column_key": "BASE",
            "fields": [{"field": "driver_uuid", "type": "UUID"}, {"field": "trip_created_at", "type": "datetime"}],
        }
    ],
}


class Said(NamedTuple):
    """A statement, and the verdict before the switch, after it, and at the end."""

    before: str
    after: str
    complete: str
    statement: str
    copied: str | None = None  #: What COPY … FROM stdin is sent.


def _all(verdict: str, *statements: str) -> list[Said]:
    return [Said(verdict, verdict, verdict, statement) for statement in statements]


def _writes(before: str, *statements: str) -> list[Said]:
    """Refused after the switch, whatever they are before it."""
    return [Said(before, "refused", "refused", statement) for statement in statements]


def _reads(after: str, *statements: str) -> list[Said]:
    return [Said("fine", after, after, statement) for statement in statements]


STATEMENTS: list[Said] = [
    # Capture refuses.
    *_writes(
        "refused",
        "TRUNCATE trips CASCADE",
        "TRUNCATE trip_notes",
        "TRUNCATE users CASCADE",
        "UPDATE trips SET id = 77 WHERE id = 5",
        "UPDATE billing_attempts SET result = 'ok' WHERE trip_id = 1",
        "UPDATE billing_attempts SET attempt_no = attempt_no + 1",
        "DELETE FROM billing_attempts WHERE trip_id = 1 AND attempt_no = 1",
        "INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 1, 'x')"
        " ON CONFLICT (trip_id, attempt_no) DO UPDATE SET result = EXCLUDED.result",
        "MERGE INTO billing_attempts b USING trips t ON t.id = b.trip_id WHEN MATCHED THEN UPDATE SET result = 'm'",
        "WITH gone AS (DELETE FROM billing_attempts RETURNING trip_id) SELECT count(*) FROM gone",
    ),
    Said("refused", "refused", "refused", "COPY trip_notes FROM stdin", "7\t1\t9\tx\t2020-01-01 00:00:00+00\n"),
    Said("refused", "refused", "fine", "UPDATE users SET user_uuid = gen_random_uuid() WHERE id = 1"),
    Said("refused", "refused", "fine", "UPDATE users SET id = 99 WHERE id = 9"),
    # Postgres refuses, for capture's triggers stand on it.
    *[
        Said("refused", "refused", "fine", statement)
        for statement in (
            "ALTER TABLE trips DROP COLUMN fare_amount",
            "ALTER TABLE trip_notes ALTER COLUMN text TYPE varchar(80)",
            "ALTER TABLE users ALTER COLUMN id TYPE numeric",
        )
    ],
    # Capture logs.
    *_writes(
        "slowed",
        "INSERT INTO trips (driver_id) VALUES (1)",
        "INSERT INTO trips VALUES (DEFAULT, 1, 'requested', 1.5)",
        "INSERT INTO trip_notes (trip_id, n, text) SELECT id, 70, 'x' FROM trips",
        "INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 2, 'ok') ON CONFLICT DO NOTHING",
        "INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'x')"
        " ON CONFLICT (trip_id, n) DO UPDATE SET trip_id = EXCLUDED.trip_id, text = EXCLUDED.text",
        "UPDATE trips SET fare_amount = fare_amount + 1 WHERE id = 1",
        "UPDATE trips SET id = 1, fare_amount = 9 WHERE id = 1",
        "UPDATE trips t SET fare_amount = 8 FROM users u WHERE u.id = t.driver_id",
        "UPDATE trip_notes SET text = upper(text)",
        "UPDATE trip_notes SET n = 9 WHERE trip_id = 1 AND n = 1",
        "UPDATE trip_notes SET trip_id = 3, n = 99 WHERE trip_id = 2",
        "DELETE FROM trip_notes WHERE trip_id = 1",
        "DELETE FROM trips WHERE id = 2",
        "MERGE INTO trips t USING users u ON u.id = t.driver_id WHEN MATCHED THEN UPDATE SET fare_amount = 4"
        " WHEN NOT MATCHED THEN INSERT (driver_id) VALUES (u.id)",
        "WITH made AS (INSERT INTO trips (driver_id) VALUES (2) RETURNING id) SELECT id FROM made",
        "EXPLAIN ANALYZE UPDATE trips SET fare_amount = 5 WHERE id = 1",
    ),
    Said("slowed", "refused", "refused", "COPY trip_notes (trip_id, n, text) FROM stdin", "1\t90\tcopied\n"),
    Said("slowed", "unserved", "unserved", "LOCK TABLE trips IN EXCLUSIVE MODE"),
    # Fine at both authorities.
    *_writes(
        "fine",
        "UPDATE trips SET rider_id = NULL WHERE id = 3",
        "UPDATE billing_attempts SET trip_id = trip_id WHERE trip_id = 1",
        "MERGE INTO trips t USING users u ON u.id = t.driver_id WHEN MATCHED AND false THEN UPDATE SET rider_id = 1",
    ),
    # By a cascade; before the switch its column is not mapped.
    Said("fine", "refused", "refused", "DELETE FROM users WHERE id = 9"),
    *_all(
        "fine",
        "INSERT INTO users (id, user_uuid) VALUES (50, gen_random_uuid())",
        "UPDATE users SET name = 'x'",
        "INSERT INTO promotions VALUES ('autumn', 2) ON CONFLICT (code) DO UPDATE SET n = EXCLUDED.n",
        "TRUNCATE promotions",
        "CREATE TABLE mine (id int)",
        "CREATE INDEX ON trips (request_at)",
        "ALTER TABLE trips ADD COLUMN colour text",
        "ALTER TABLE trips DROP COLUMN rider_id",
        "ANALYZE trips",
        "SET LOCAL work_mem = '8MB'",
        "EXPLAIN UPDATE trips SET id = 3",
        "SELECT pg_advisory_xact_lock(7)",
        "MERGE INTO trips t USING users u ON u.id = t.driver_id WHEN MATCHED THEN DO NOTHING",
    ),
    # Reads by key and by index.
    *_reads(
        "fine",
        "SELECT status, fare_amount FROM trips WHERE id = 1",
        "SELECT status FROM trips WHERE id IN (1, 2) AND status = 'requested'",
        "SELECT text FROM trip_notes WHERE trip_id = 1 ORDER BY n DESC LIMIT 5",
        "SELECT id FROM trips WHERE driver_id = 1 AND request_at > '2020-01-01' ORDER BY request_at LIMIT 10",
        "SELECT name FROM users WHERE id = 3",
        "DECLARE few CURSOR FOR SELECT status FROM trips WHERE id = 1",
    ),
    *_reads(
        "unserved",
        "SELECT id FROM trips WHERE status = 'requested'",
        "SELECT id FROM trips WHERE driver_id = 1 AND status = 'requested'",
        "SELECT count(*) FROM trips WHERE driver_id = 1",
        "SELECT t.id FROM trips t JOIN trip_notes n ON n.trip_id = t.id WHERE t.id = 1",
        "SELECT driver_id, max(fare_amount) FROM trips GROUP BY driver_id",
        "SELECT id FROM trips WHERE driver_id = 1 ORDER BY id OFFSET 5",
        "SELECT updated_at FROM trips WHERE id = 1",
        "SELECT status FROM trips WHERE id = 1 FOR UPDATE",
        "SELECT text FROM trip_notes WHERE text LIKE 'o%%'",
        "SELECT status FROM open_trips WHERE id = 1",
        "SELECT name FROM users WHERE EXISTS (SELECT * FROM trips WHERE driver_id = users.id)",
        "SELECT id FROM trips UNION SELECT id FROM users",
        "COPY (SELECT id FROM trips) TO STDOUT",
    ),
    # Postgres takes it; capture does not.
    *[
        Said("breaks", "breaks", "fine", statement)
        for statement in (
            "ALTER TABLE trips DISABLE TRIGGER ALL",
            "ALTER TABLE trips DROP COLUMN fare_amount CASCADE",
            "ALTER TABLE trips RENAME COLUMN status TO state",
            "ALTER TABLE trip_notes RENAME TO remarks",
            "DROP TABLE trip_notes",
            "CREATE TABLE more_notes () INHERITS (trip_notes)",
        )
    ],
]

#: What cannot be told: of these nothing is held against Postgres.
UNCLEAR = (
    "SELECT * FROM trips WHERE id = 1",
    "INSERT INTO trip_archive SELECT * FROM trips",
    "SELECT to_jsonb(t) FROM trips t WHERE id = 1",
    "COPY trips TO STDOUT",
    "UPDATE open_trips SET status = 'completed'",
    "INSERT INTO pings VALUES (1)",
    "INSERT INTO wishes VALUES (1)",
    "SELECT bill(1)",
    "DO $$ BEGIN DELETE FROM trips; END $$",
    "UPDATE trips SET base_version = base_version + 1 WHERE id = 1",
    "UPDATE billing_attempts SET amount = 1.1 WHERE amount = 1.1",
    "EXECUTE elsewhere",
    "INSERT INTO no_such_table VALUES (1)",
    "PREPARE TRANSACTION 'half'",
    "CREATE TRIGGER late BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION note()",
    "SELEC 1",
)


#: A table in partitions, which may be named themselves.
PARTITIONED = """
CREATE TABLE rides (id bigserial PRIMARY KEY, fare numeric);
CREATE TABLE stops (ride_id bigint NOT NULL REFERENCES rides ON DELETE CASCADE, n int NOT NULL, place text,
    PRIMARY KEY (ride_id, n)) PARTITION BY RANGE (ride_id);
CREATE TABLE stops_1 PARTITION OF stops FOR VALUES FROM (1) TO (3);
CREATE TABLE stops_2 PARTITION OF stops FOR VALUES FROM (3) TO (9);
INSERT INTO rides (fare) VALUES (1), (2), (3);
INSERT INTO stops SELECT id, 1, 'here' FROM rides;
"""
RIDES = {
    "datastore": "trips",
    "row_key": {"table": "rides", "id": "id", "uuid": "ride_uuid"},
    "columns": {
        "BASE": {"table": "rides", "ref_key": {"version": "base_version"}, "fields": {"fare": {"type": "decimal"}}},
        "STOPS": {
            "table": "stops",
            "parent": {"column": "ride_id"},
            "ref_key": {"column": "n", "version": "stop_version"},
            "fields": {"place": {"type": "string"}},
        },
    },
}
OF_PARTITIONS: list[Said] = [
    *_writes(
        "refused",
        "TRUNCATE stops_1",
    ),
    Said("refused", "refused", "refused", "COPY stops_1 FROM stdin", "1\t7\tthere\n"),
    *_writes(
        "slowed",
        "INSERT INTO stops_1 (ride_id, n, place) VALUES (2, 70, 'x')",
        "UPDATE stops_2 SET place = 'y'",
        "UPDATE stops_1 SET n = 5 WHERE ride_id = 1",
        "UPDATE stops SET ride_id = 3, n = n + 50 WHERE ride_id = 1",
        "DELETE FROM ONLY stops_1 WHERE ride_id = 2",
        "DELETE FROM rides WHERE id = 3",
    ),
    Said("fine", "fine", "fine", "SELECT place FROM stops_1 WHERE ride_id = 1"),
    *[
        Said("breaks", "breaks", "fine", statement)
        for statement in ("ALTER TABLE stops DETACH PARTITION stops_2", "DROP TABLE stops_2")
    ],
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Postgres did; the changes that capture logged were taken back with the rest."""

    sqlstate: str | None
    logged: int = 0
    #: Of the phase off: what capture and layout are not as they should be, once it has run.
    faults: tuple[str, ...] = ()


def happens(url: str, said: Said, phase: Phase, layout: Layout = LAYOUT) -> Outcome:
    """Run a statement as a service would, and take it back."""
    with _taken_back(url) as cursor:
        try:
            if said.statement.startswith("COPY"):
                cursor.copy_expert(said.statement, io.StringIO(said.copied or ""))
            else:
                cursor.execute(said.statement.replace("%%", "%"))
        except psycopg2.Error as error:
            return Outcome(error.pgcode)
        if phase is Phase.COMPLETE:
            return Outcome(None)
        cursor.execute("SELECT count(*) FROM tripstore.queue WHERE xid = pg_current_xact_id()")
        logged = int(cursor.fetchone()[0])
        faults = _faults(cursor.connection, layout) if phase is Phase.OFF else ()
        return Outcome(None, logged, faults)


def _faults(connection: Connection, layout: Layout) -> tuple[str, ...]:
    """What `doctor` would say, within the statement's own transaction."""
    complaints = [*verify(connection, layout), *check_layout(connection, layout)]
    breach = look_at_partitions(connection)
    faults = [str(complaint) for complaint in complaints if complaint.is_error]
    return (*faults, *([str(breach)] if breach is not None else []))


@contextmanager
def _taken_back(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(url, application_name="billing", options="-c lock_timeout=5s")
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.rollback()
        connection.close()
