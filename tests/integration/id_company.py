"""A small company without UUIDs: its tables, its code, which knows only ids, and the layout that maps them."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.actors import with_failpoints
from tests.companies import Companies
from tests.databases import create_database, kept
from tests.forking import FORK_SERVER
from tests.scale import SCALE
from tripstore.backends.postgres.ddl.ddl import Patience
from tripstore.backends.postgres.ddl.steps import Progress, SchemaStep
from tripstore.backends.postgres.ids.key_backfill import FillPace
from tripstore.backends.postgres.ids.key_match import match_keys
from tripstore.backends.postgres.ids.steps import key_columns
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel")
#: For what no version of Postgres does in another way: in CI the newest alone.
ONE_FLAVOUR = FLAVOURS if SCALE >= 1 else FLAVOURS[-1:]
_numbers = itertools.count(1)

TRIPS, NOTES = TableName("public", "trips"), TableName("public", "trip_notes")
ATTEMPTS, ADJUSTMENTS = TableName("billing", "attempts"), TableName("public", "fare_adjustments")
TABLES = (TRIPS, NOTES, ATTEMPTS, ADJUSTMENTS)

#: Every table has a trigger of the company's that tells of each update.
SCHEMA = """
CREATE SCHEMA billing;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.touched := NEW.touched + 1; RETURN NEW; END $$;
CREATE TABLE trips (id serial PRIMARY KEY, status text NOT NULL DEFAULT 'requested', touched int NOT NULL DEFAULT 0);
CREATE TABLE trip_notes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trip_id int NOT NULL REFERENCES trips ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, n int NOT NULL,
    note text, touched int NOT NULL DEFAULT 0, UNIQUE (trip_id, n));
CREATE TABLE billing.attempts (
    trip_id int NOT NULL REFERENCES trips ON DELETE CASCADE, attempt_no smallint NOT NULL, result text,
    touched int NOT NULL DEFAULT 0, PRIMARY KEY (trip_id, attempt_no));
CREATE TABLE fare_adjustments (
    trip_id int NOT NULL REFERENCES trips ON DELETE CASCADE, n int NOT NULL, reason text,
    touched int NOT NULL DEFAULT 0, PRIMARY KEY (trip_id, n)) PARTITION BY HASH (trip_id);
CREATE TABLE fare_adjustments_p0 PARTITION OF fare_adjustments FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE fare_adjustments_p1 PARTITION OF fare_adjustments FOR VALUES WITH (MODULUS 2, REMAINDER 1)
    PARTITION BY LIST (n);
CREATE TABLE fare_adjustments_p1_first PARTITION OF fare_adjustments_p1 FOR VALUES IN (1);
CREATE TABLE fare_adjustments_p1_rest PARTITION OF fare_adjustments_p1 DEFAULT;
CREATE TRIGGER touch BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE UPDATE ON trip_notes FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE UPDATE ON billing.attempts FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE UPDATE ON fare_adjustments FOR EACH ROW EXECUTE FUNCTION touch();
"""

#: Trips, a note and an attempt of each, every second with an adjustment. Ids have gaps.
ROWS = """
INSERT INTO trips (id) SELECT g * 3 FROM generate_series(1, {count}) g;
SELECT setval('trips_id_seq', {count} * 3);
INSERT INTO trip_notes (trip_id, n, note) SELECT id, 1, 'note' FROM trips;
INSERT INTO billing.attempts (trip_id, attempt_no) SELECT id, 1 FROM trips;
INSERT INTO fare_adjustments (trip_id, n) SELECT id, 1 + id % 2 FROM trips WHERE id % 2 = 0;
"""

#: Rows of children whose key is not their trip's.
_UNPAIRED = """\
SELECT count(*) FROM {table} AS t LEFT JOIN trips p ON p.id = t.trip_id WHERE t.{uuid} IS DISTINCT FROM p.trip_uuid"""

#: Impatient: a test that holds a lock waits for its end.
QUICK = Patience(
    lock_timeout_seconds=0.1, pause_seconds=0.02, old_seconds=60.0, give_up_seconds=0.3, build_give_up_seconds=0.3
)
FULL_SPEED = FillPace(batch_seconds=0.05, share=1.0, first_rows=7, most_rows=50)

_FIELD = {"status": Field("status", "status", FieldType.STRING)}


def layout(uuid: str = "trip_uuid", source: TableName = TRIPS) -> Layout:
    """What `layout.yaml` would say."""
    facts, child = RefKeySource(column="attempt_no"), RefKeySource(column="n", version="version")
    columns = [
        MappedColumn("BASE", source, uuid, None, RefKeySource(version="base_version"), (_FIELD["status"],)),
        MappedColumn("NOTES", NOTES, "trip_uuid", "trip_id", child, (Field("note", "note", FieldType.STRING),)),
        MappedColumn("STATUS", ATTEMPTS, "row_key", "trip_id", facts, (Field("result", "result", FieldType.STRING),)),
        MappedColumn("FARES", ADJUSTMENTS, "trip_uuid", "trip_id", child, (Field("why", "reason", FieldType.STRING),)),
    ]
    return Layout("trips", RowKeySource(source, "id", uuid), {column.name: column for column in columns})


LAYOUT = layout()


def postgres(servers: LocalServers, flavour: Flavour) -> PostgresServer:
    """The one server of a flavour that all tests here share. Where there is none they are skipped, but not in CI."""
    name = f"ids-{flavour}"
    for server in servers.servers:
        if server.name == name and isinstance(server, PostgresServer):
            return server
    try:
        made = servers.postgres(name, flavour=flavour)
    except LocalServerError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    # No power is cut here: what a process that was killed wrote, the machine still has.
    for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):
        made.query(statement)
    return made


@cache
def companies_on(server: PostgresServer) -> Companies:
    """Databases of the example company; its templates are made once."""
    return Companies(server)


#: Ends the sessions that are left, and drops whatever a test made. Much quicker than a new database.
_EMPTIED = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
END $$;
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC"""


@cache
def _free_databases(_server: PostgresServer) -> list[str]:
    return []


@contextmanager
def database(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that is the test's alone."""
    free = _free_databases(server)
    if not free:
        free.append(f"ids{next(_numbers)}")
        with kept():
            create_database(server.url, free[-1])
    name = free.pop()
    yield f"{server.url}/{name}"
    server.query(_EMPTIED, database=name)
    free.append(name)


@contextmanager
def small_company(server: PostgresServer, count: int) -> Iterator[str]:
    """The URL of a database with the company's tables and so many trips."""
    with database(server) as url:
        with company_session(url) as connection:
            rows(connection, f"{SCHEMA}; {ROWS.format(count=count)}")
        yield url


@contextmanager
def session(url: str, what: str = "test") -> Iterator[Connection]:
    """A session as the steps have it."""
    with connected(url, what) as connection:
        yield connection


@contextmanager
def company_session(url: str, what: str = "old code") -> Iterator[Connection]:
    """A session of the company's, with the settings of everybody."""
    with connected(url, what, search_path="public") as connection:
        yield connection


def killed(folder: Path, point: str, after: int, target: Callable[[str], None], url: str) -> None:
    """Run something in a process that is killed when it reaches a failpoint once more than so often."""
    (folder / point).write_text(f"kill after={after}")
    process = FORK_SERVER.Process(target=with_failpoints, args=(str(folder), target, url))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def silent(_done: int, _total: int | None) -> None:
    """The test does not look at the progress."""


def apply(connection: Connection, steps: list[SchemaStep], progress: Progress = silent) -> None:
    for step in steps:
        if not step.is_done(connection):
            step.apply(connection, progress)


def one(connection: Connection, statement: str, parameters: Any = None) -> Any:
    """The one value of an answer."""
    [(value,)] = rows(connection, statement, parameters)
    return value


def unfilled(connection: Connection) -> int:
    """Rows without a key, or with another one than their trip's."""
    pairs = [("trip_notes", "trip_uuid"), ("billing.attempts", "row_key"), ("fare_adjustments", "trip_uuid")]
    strays = sum(one(connection, _UNPAIRED.format(table=table, uuid=uuid)) for table, uuid in pairs)
    return int(strays + one(connection, "SELECT count(*) FROM trips WHERE trip_uuid IS NULL"))


def strays(connection: Connection, of: Layout) -> list[str]:
    """Columns in which a row has no key, or another one than its parent."""
    return [column.title for column in key_columns(of) if match_keys(connection, column).different]


class OldCode:
    """A service of the company's: all that it ever does, by ids, in every way that Postgres takes rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.trips: list[int] = []

    def work(self) -> None:
        """Whatever it cannot do any more raises."""
        for insert in (self.insert, self.insert_together, self.insert_by_cte, self.copy):
            trip = insert()
            self.trips.append(trip)
            self._touch(trip)
        self._upsert(self.trips[0])
        self._move(self.trips[0], self.trips[1])
        self._delete(self.trips.pop())

    def insert(self) -> int:
        trip: int = self._one("INSERT INTO trips (status) VALUES ('requested') RETURNING id")
        self._run("INSERT INTO trip_notes (trip_id, n, note) VALUES (%s, 1, 'a')", trip)
        self._run("INSERT INTO billing.attempts (trip_id, attempt_no) VALUES (%s, 1)", trip)
        self._run("INSERT INTO fare_adjustments (trip_id, n) VALUES (%s, 1), (%s, 2)", trip, trip)
        return trip

    def insert_together(self) -> int:
        """One transaction, and the note even before its trip: its foreign key is checked at the end."""
        trip: int = self._one("SELECT nextval('trips_id_seq')")
        self._run(
            "BEGIN; INSERT INTO trip_notes (trip_id, n) VALUES (%s, 1); INSERT INTO trips (id) VALUES (%s); "
            "INSERT INTO billing.attempts (trip_id, attempt_no) VALUES (%s, 1); COMMIT",
            trip, trip, trip,
        )  # fmt: skip
        return trip

    def insert_by_cte(self) -> int:
        """One statement for both."""
        statement = (
            "WITH t AS (INSERT INTO trips DEFAULT VALUES RETURNING id), "
            "a AS (INSERT INTO billing.attempts (trip_id, attempt_no) SELECT id, 1 FROM t) "
            "INSERT INTO trip_notes (trip_id, n) SELECT id, 1 FROM t RETURNING trip_id"
        )
        return int(self._one(statement))

    def copy(self) -> int:
        trip: int = self._one("SELECT nextval('trips_id_seq')")
        for table, line in (
            ("trips (id, status)", f"{trip}\tcopied\n"),
            ("trip_notes (trip_id, n)", f"{trip}\t1\n{trip}\t2\n"),
            ("billing.attempts (trip_id, attempt_no)", f"{trip}\t1\n"),
            ("fare_adjustments (trip_id, n)", f"{trip}\t1\n{trip}\t2\n"),
        ):
            self._copy_in(table, line)
        return trip

    def _copy_in(self, table: str, lines: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY {table} FROM STDIN", StringIO(lines))

    def _touch(self, trip: int) -> None:
        self._run("UPDATE trips SET status = 'done' WHERE id = %s", trip)
        self._run("UPDATE trip_notes SET note = 'b' WHERE trip_id = %s", trip)
        self._run("UPDATE fare_adjustments SET n = n + 10 WHERE trip_id = %s", trip)
        assert self._one("SELECT count(*) FROM trips JOIN trip_notes ON trip_id = trips.id WHERE trips.id = %s", trip)

    def _upsert(self, trip: int) -> None:
        statement = (
            "INSERT INTO trip_notes (trip_id, n) VALUES (%s, 1) ON CONFLICT (trip_id, n) DO UPDATE SET note = 'c'"
        )
        self._run(statement, trip)

    def _move(self, trip: int, other: int) -> None:
        """A note that was written to the wrong trip, there and back again."""
        self._run("UPDATE trip_notes SET trip_id = %s, n = 99 WHERE trip_id = %s AND n = 1", other, trip)
        self._run("UPDATE trip_notes SET trip_id = %s, n = 1 WHERE trip_id = %s AND n = 99", trip, other)

    def _delete(self, trip: int) -> None:
        self._run("DELETE FROM trips WHERE id = %s", trip)
        assert self._one("SELECT count(*) FROM trip_notes WHERE trip_id = %s", trip) == 0

    def _one(self, statement: str, *parameters: Any) -> Any:
        return one(self._connection, statement, parameters or None)

    def _run(self, statement: str, *parameters: Any) -> None:
        rows(self._connection, statement, parameters or None)
