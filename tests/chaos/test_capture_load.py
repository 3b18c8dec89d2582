"""Eight services write the legacy tables at once, fail, deadlock and are killed: capture holds what was committed (I8).

Each change carries a token, and writes it down in a table of witnesses in the same transaction, under the same
savepoints: what the witnesses hold was committed, whatever the writer lived to hear. Queue and log together must hold
each token once and no other, one body for each key, and end as the tables do (I2).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812
from psycopg2.extensions import cursor as Cursor  # noqa: N812

from tests.chaos.actors import end, running
from tests.integration.creation import FORK_SERVER
from tests.integration.test_capture_versions import before_insert_alone
from tests.legacy import FLAVOURS, Legacy, layout, legacy_server
from tests.scale import scaled
from tripstore.backends.postgres.capture.sqlstates import BELOW_TOMBSTONE, NO_PARENT
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

WRITERS = 8
CHANGES = scaled(200_000)
#: At most: the control ends as soon as it is caught.
CONTROL_CHANGES = 20_000
#: Few, so that the writers meet.
KEYS = [UUID(int=n + 1) for n in range(24)]
NUMBERS = (1, 2, 3)
SECONDS = 1500

WITNESS = "CREATE TABLE witness (token text, column_name text); CREATE SEQUENCE numbers"
WITNESSED = "INSERT INTO witness (token, column_name) VALUES (%s, %s)"
#: A deadlock is found soon; no server dies here, so nothing waits for a disk.
SETTINGS = "ALTER DATABASE {0} SET deadlock_timeout = '15ms'; ALTER DATABASE {0} SET synchronous_commit = off"
ISOLATIONS = ["READ COMMITTED"] * 4 + ["REPEATABLE READ", "SERIALIZABLE"]

SERIALIZATION, DEADLOCK, UNIQUE = "40001", "40P01", "23505"
#: What services meet without capture, too, and a fact whose number was taken long before the deletion of its trip.
ALLOWED = {DEADLOCK, "trips_trip_uuid_key", "notes_pkey", "attempts", NO_PARENT, BELOW_TOMBSTONE}

DELIVER = """
WITH gone AS (DELETE FROM tripstore.queue RETURNING *)
INSERT INTO tripstore.log SELECT *, clock_timestamp() FROM gone
"""
TWICE = """
SELECT row_key, column_name, ref_key, count(*), count(DISTINCT row) FROM changes
GROUP BY 1, 2, 3 HAVING count(*) > 1
"""
TOKENS = "SELECT token, column_name FROM witness"
CAPTURED = """
SELECT row::json ->> CASE column_name WHEN 'BASE' THEN 'status' WHEN 'NOTES' THEN 'text' ELSE 'result' END, column_name
FROM changes WHERE row IS NOT NULL
"""
#: The highest of each cell's ref keys; of facts all those above the last tombstone.
LATEST = f"""
SELECT row_key, column_name, ref_key, row::json ->> 'status' FROM (
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
    AND t.row_key = c.row_key AND t.ref_key > c.ref_key)
"""
TABLES = f"""
SELECT trip_uuid, 'BASE', base_version, status FROM trips
UNION ALL SELECT trip_uuid, 'NOTES', n << {VERSION_BITS} | note_version, text FROM notes
UNION ALL SELECT trip_uuid, 'STATUS', attempt_no, result FROM attempts
"""
#: Each change says what it replaced: nothing is skipped. Facts do not replace each other.
BROKEN_CHAIN = f"""
SELECT row_key, column_name, ref_key, previous, before FROM (
  SELECT *, lag(ref_key) OVER (PARTITION BY row_key, column_name,
    CASE column_name WHEN 'NOTES' THEN ref_key >> {VERSION_BITS} ELSE 0 END ORDER BY ref_key) AS before
  FROM changes WHERE column_name <> 'STATUS') AS chain
WHERE previous IS DISTINCT FROM before
"""
VIEW = """
CREATE OR REPLACE VIEW changes AS
SELECT row_key, column_name, ref_key, row, previous FROM tripstore.queue
UNION ALL SELECT row_key, column_name, ref_key, row, previous FROM tripstore.log
"""


class Writer:
    """One service."""

    def __init__(self, url: str, errors: Path, seed: int) -> None:
        self._url = url
        self._errors = errors
        self._choose = random.Random(seed)
        self._name = f"{seed}-{os.getpid()}"
        self._number = 0

    def write_for_ever(self) -> None:
        while True:
            with suppress(psycopg2.OperationalError, psycopg2.InterfaceError):  # our backend was terminated
                connection = psycopg2.connect(self._url, application_name="writer")
                while True:
                    self._transaction(connection)

    def _transaction(self, connection: Connection) -> None:
        isolation = self._choose.choice(ISOLATIONS)
        connection.set_session(isolation_level=isolation)
        try:
            with connection.cursor() as cursor:
                for _ in range(self._choose.randrange(1, 5)):
                    self._piece(cursor)
            connection.rollback() if self._choose.random() < 0.15 else connection.commit()
        except psycopg2.Error as error:
            if error.pgcode is None or error.pgcode.startswith("57"):
                raise psycopg2.OperationalError from error
            self._note(isolation, error)
            connection.rollback()

    def _piece(self, cursor: Cursor) -> None:
        """One change, or one that a savepoint takes back."""
        operation = self._choose.choice(self._operations())
        if self._choose.random() > 0.25:
            operation(cursor, self._choose.choice(KEYS))
            return
        cursor.execute("SAVEPOINT s")
        operation(cursor, self._choose.choice(KEYS))
        if self._choose.random() < 0.6:
            cursor.execute("ROLLBACK TO SAVEPOINT s")

    def _operations(self) -> list[Callable[[Cursor, UUID], None]]:
        often = [self._insert, self._update, self._upsert, self._delete]
        return [*often, *often, self._plain_insert, self._again, self._several, self._memo, *self._children()]

    def _children(self) -> list[Callable[[Cursor, UUID], None]]:
        return [self._note_insert, self._note_insert, self._note_update, self._note_delete, self._fact]

    def _insert(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(
            cursor, "BASE", "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) ON CONFLICT DO NOTHING", key
        )

    def _plain_insert(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(cursor, "BASE", "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s)", key)

    def _upsert(self, cursor: Cursor, key: UUID) -> None:
        upsert = (
            "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) ON CONFLICT (trip_uuid)"
            " DO UPDATE SET status = EXCLUDED.status, base_version = EXCLUDED.base_version"
        )
        self._witnessed(cursor, "BASE", upsert, key)

    def _update(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(
            cursor,
            "BASE",
            "UPDATE trips AS t SET status = v.s FROM (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k",
            key,
        )

    def _memo(self, cursor: Cursor, key: UUID) -> None:
        cursor.execute("UPDATE trips SET memo = 'm' WHERE trip_uuid = %s", (str(key),))

    def _delete(self, cursor: Cursor, key: UUID) -> None:
        cursor.execute("DELETE FROM trips WHERE trip_uuid = %s", (str(key),))

    def _again(self, cursor: Cursor, key: UUID) -> None:
        self._delete(cursor, key)
        self._insert(cursor, key)

    def _several(self, cursor: Cursor, key: UUID) -> None:
        """Rows in an order that others do not keep."""
        token = self._token()
        keys = [str(key) for key in self._choose.sample(KEYS, 3)]
        cursor.execute(
            "UPDATE trips SET status = %s || trip_uuid WHERE trip_uuid = ANY (%s::uuid[]) RETURNING status",
            (token, keys),
        )
        for (status,) in cursor.fetchall():
            cursor.execute(WITNESSED, (status, "BASE"))

    def _note_insert(self, cursor: Cursor, key: UUID) -> None:
        insert = (
            f"INSERT INTO notes (trip_id, n, text) SELECT id, {self._choose.choice(NUMBERS)}, v.s"
            " FROM trips t, (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k ON CONFLICT DO NOTHING"
        )
        self._witnessed(cursor, "NOTES", insert, key)

    def _note_update(self, cursor: Cursor, key: UUID) -> None:
        update = (
            "UPDATE notes AS t SET text = v.s FROM (VALUES (%s::uuid, %s)) AS v (k, s)"
            f" WHERE t.trip_uuid = v.k AND t.n = {self._choose.choice(NUMBERS)}"
        )
        self._witnessed(cursor, "NOTES", update, key)

    def _note_delete(self, cursor: Cursor, key: UUID) -> None:
        cursor.execute(f"DELETE FROM notes WHERE trip_uuid = %s AND n = {self._choose.choice(NUMBERS)}", (str(key),))

    def _fact(self, cursor: Cursor, key: UUID) -> None:
        insert = (
            "INSERT INTO attempts (trip_id, attempt_no, result) SELECT id, nextval('numbers'), v.s"
            " FROM trips t, (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k"
        )
        self._witnessed(cursor, "STATUS", insert, key)

    def _witnessed(self, cursor: Cursor, column: str, statement: str, key: UUID) -> None:
        token = self._token()
        cursor.execute(statement, (str(key), token))
        if cursor.rowcount:
            cursor.execute(WITNESSED, (token, column))

    def _token(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number} "

    def _note(self, isolation: str, error: psycopg2.Error) -> None:
        what = error.pgcode
        if what == UNIQUE:
            name = error.diag.constraint_name or ""
            what = "attempts" if name.startswith("attempts") else "notes_pkey" if name.startswith("notes") else name
        with self._errors.open("a") as file:
            file.write(f"{isolation}|{what}\n")


def write(url: str, errors: str, seed: int) -> None:
    Writer(url, Path(errors), seed).write_for_ever()


def start(legacy: Legacy, errors: Path, seed: int) -> BaseProcess:
    process: BaseProcess = FORK_SERVER.Process(target=write, args=(legacy.url, str(errors), seed))
    return process


def load(legacy: Legacy, errors: Path, changes: int, is_enough: Callable[[], bool] = lambda: False) -> Counter[str]:
    """Writers and accidents, until so many changes were committed; what is queued is delivered meanwhile."""
    legacy.sql(VIEW)
    choose, accidents = random.Random(), Counter[str]()
    writers = [start(legacy, errors, seed) for seed in range(WRITERS)]
    until = time.monotonic() + SECONDS
    seeds = iter(range(WRITERS, 1_000_000))
    with running(writers):
        for committed in committed_so_far(legacy):
            legacy.sql(DELIVER)
            if committed >= changes or is_enough():
                break
            assert time.monotonic() < until, f"{committed} of {changes} changes"
            accidents += accident(legacy, errors, writers, choose, seeds)
        for writer in writers:
            end(writer)
    legacy.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'writer'"
        " AND datname = current_database()"
    )
    return accidents


def committed_so_far(legacy: Legacy) -> Iterator[int]:
    while True:
        yield int(legacy.sql("SELECT count(*) FROM witness")[0][0])


def accident(
    legacy: Legacy, errors: Path, writers: list[BaseProcess], choose: random.Random, seeds: Iterator[int]
) -> Counter[str]:
    """A client is killed and another takes its place, or a backend is terminated; mostly nothing."""
    chance = choose.random()
    if chance < 0.05:
        n = choose.randrange(len(writers))
        end(writers[n])
        writers[n] = start(legacy, errors, next(seeds))
        writers[n].start()
        return Counter(clients=1)
    if chance < 0.3:
        legacy.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'writer'"
            " AND datname = current_database() ORDER BY random() LIMIT 1"
        )
        return Counter(backends=1)
    return Counter()


def wrong(legacy: Legacy) -> dict[str, list[Any]]:
    """Which rules are broken, with examples; empty when capture holds what was committed. All of one snapshot."""
    connection = legacy.connect(isolation="REPEATABLE READ")
    try:
        witnessed, captured = (Counter(rows(connection, query)) for query in (TOKENS, CAPTURED))
        latest, tables = (Counter(rows(connection, query)) for query in (LATEST, TABLES))
        found: dict[str, list[Any]] = {
            "committed and not captured": list(witnessed - captured),
            "captured and not committed": list(captured - witnessed),
            "two changes under one key": rows(connection, TWICE),
            "the latest change is not in the table": list(latest - tables),
            "the table is not the latest change": list(tables - latest),
            "the chain of versions is broken": rows(connection, BROKEN_CHAIN),
        }
    finally:
        connection.close()
    return {rule: examples[:5] for rule, examples in found.items() if examples}


def errors_of(folder: Path) -> Counter[tuple[str, str]]:
    lines = (folder / "errors").read_text().splitlines()
    return Counter((isolation, what) for isolation, what in (line.split("|") for line in lines))


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = Legacy(legacy_server(servers, flavour))
    made.sql(WITNESS)
    made.sql(SETTINGS.format(made.name))
    return made


def test_capture_holds_every_committed_change_once(legacy: Legacy, tmp_path: Path) -> None:
    legacy.install(layout())
    started = time.monotonic()
    accidents = load(legacy, tmp_path / "errors", CHANGES)
    seconds = time.monotonic() - started

    assert wrong(legacy) == {}
    errors = errors_of(tmp_path)
    changes, tombstones = legacy.sql("SELECT count(*), count(*) FILTER (WHERE row IS NULL) FROM changes")[0]
    print(
        f"{legacy.server.version}: {changes:,} changes, {tombstones:,} tombstones in {seconds:.0f} s;"
        f" {dict(accidents)}; {dict(errors)}"
    )
    # Nobody meets an error that he did not know before.
    strange = {(how, what) for how, what in errors if what not in ALLOWED and not is_serialization(how, what)}
    assert strange == set()
    assert accidents["backends"] > 0
    assert any(what == DEADLOCK for _, what in errors)


def is_serialization(isolation: str, what: str) -> bool:
    return what == SERIALIZATION and isolation != "READ COMMITTED"


def test_control_versions_from_before_insert_alone_are_caught(legacy: Legacy, tmp_path: Path) -> None:
    legacy.install(layout(), saboteur=before_insert_alone)
    load(legacy, tmp_path / "errors", CONTROL_CHANGES, lambda: "two changes under one key" in wrong(legacy))

    found = wrong(legacy)
    print(f"{legacy.server.version}: {found}, {dict(errors_of(tmp_path))}")
    assert found["two changes under one key"]
