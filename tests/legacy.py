"""A small company in a database of its own, with capture installed: for tests of what stands behind the legacy store.

A row with versions, facts, child rows that change (partitioned by hash), and one table partitioned by time. The
company's own triggers are there, too: one sets updated_at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.databases import create_database, kept
from tests.legacy_databases import postgres_server
from tripstore.backends.postgres.capture import capture_steps, verify
from tripstore.backends.postgres.capture.plan import Saboteur
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.handover.queue import COLUMNS
from tripstore.backends.postgres.layout.layout import (
    DeletePolicy,
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

_NUMBERS = count(1)
#: Names of databases that are copied, by server, layout and tables.
_TEMPLATES: dict[tuple[str, str, str], str] = {}
FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel")

TABLES = """
CREATE TABLE users (id int PRIMARY KEY, user_uuid uuid NOT NULL UNIQUE, name text);
CREATE TABLE trips (
    id bigserial PRIMARY KEY,
    trip_uuid uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    driver_id int REFERENCES users (id),
    status text,
    fare numeric,
    distance float8,
    request_at timestamptz,
    memo text,
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 85);
CREATE TABLE attempts (
    id bigserial PRIMARY KEY,
    trip_id bigint NOT NULL REFERENCES trips (id) ON DELETE CASCADE,
    trip_uuid uuid NOT NULL,
    attempt_no int NOT NULL,
    result text,
    memo text,
    UNIQUE (trip_uuid, attempt_no)
);
CREATE TABLE notes (
    trip_id bigint NOT NULL REFERENCES trips (id) ON DELETE CASCADE,
    trip_uuid uuid NOT NULL,
    n bigint NOT NULL,
    text text,
    memo text,
    PRIMARY KEY (trip_id, n)
) PARTITION BY HASH (trip_id);
CREATE INDEX ON notes (trip_uuid, n);
CREATE TABLE notes_0 PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE notes_1 PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION touch();
INSERT INTO users VALUES (1, '11111111-1111-1111-1111-111111111111', 'a'),
    (2, '22222222-2222-2222-2222-222222222222', 'b');
"""

#: Its primary key holds the partition's key; the partitions' own indexes are what races rest on.
MOVING_TABLE = """
CREATE TABLE trips (
    id bigint NOT NULL, trip_uuid uuid NOT NULL, region int NOT NULL, status text, memo text, PRIMARY KEY (id, region)
) PARTITION BY LIST (region);
CREATE TABLE trips_1 PARTITION OF trips FOR VALUES IN (1);
CREATE TABLE trips_2 PARTITION OF trips FOR VALUES IN (2);
"""

USERS = Lookup(TableName("public", "users"), "id", "user_uuid")
PARENT = RowKeySource(TableName("public", "trips"), "id", "trip_uuid")


def base(on_delete: DeletePolicy = DeletePolicy.TOMBSTONE, *more: Field) -> MappedColumn:
    fields = (
        Field("driver_uuid", "driver_id", FieldType.UUID, USERS),
        Field("status", "status", FieldType.STRING),
        Field("fare", "fare", FieldType.DECIMAL),
        Field("distance", "distance", FieldType.FLOAT),
        Field("request_at", "request_at", FieldType.DATETIME),
        *more,
    )
    source = RefKeySource(version="base_version")
    return MappedColumn("BASE", PARENT.table, "trip_uuid", None, source, fields, "base_extra", on_delete)


def attempts(on_delete: DeletePolicy = DeletePolicy.TOMBSTONE) -> MappedColumn:
    fields = (Field("result", "result", FieldType.STRING),)
    source = RefKeySource(column="attempt_no")
    return MappedColumn(
        "STATUS", TableName("public", "attempts"), "trip_uuid", "trip_id", source, fields, None, on_delete
    )


def notes(on_delete: DeletePolicy = DeletePolicy.TOMBSTONE) -> MappedColumn:
    fields = (Field("text", "text", FieldType.STRING),)
    source = RefKeySource(column="n", version="note_version")
    return MappedColumn("NOTES", TableName("public", "notes"), "trip_uuid", "trip_id", source, fields, None, on_delete)


def layout(*columns: MappedColumn) -> Layout:
    chosen = columns or (base(), attempts(), notes())
    return Layout("trips", PARENT, {column.name: column for column in chosen})


def moving_layout() -> Layout:
    fields = (Field("status", "status", FieldType.STRING),)
    source = RefKeySource(version="base_version")
    return layout(MappedColumn("BASE", PARENT.table, "trip_uuid", None, source, fields))


#: All that is queued is delivered, as far as Postgres knows.
DELIVER = (
    f"WITH gone AS (DELETE FROM tripstore.queue RETURNING *) INSERT INTO tripstore.log ({COLUMNS}, delivered_at)"
    f" SELECT {COLUMNS}, clock_timestamp() FROM gone"
)


class Change(NamedTuple):
    """A row of queue or log; `row` is None for a tombstone."""

    row_key: UUID
    column: str
    ref_key: int
    row: dict[str, Any] | None
    previous: int | None
    origin: str | None


class Legacy:
    """A database on a running server."""

    def __init__(self, server: PostgresServer, *, tables: str = TABLES, template: str = "template1") -> None:
        self.server = server
        self.name = f"legacy{next(_NUMBERS)}"
        create_database(server.url, self.name, template)
        self.url = f"{server.url}/{self.name}"
        if template == "template1":
            self.sql(tables)

    def connect(self, *, isolation: str | None = None, autocommit: bool = False) -> Connection:
        """A service's connection, with the settings that the server gives to anybody."""
        connection = psycopg2.connect(self.url)
        connection.set_session(isolation_level=isolation, autocommit=autocommit)
        return connection

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """One statement of a service's, committed."""
        connection = self.connect(autocommit=True)
        try:
            return rows(connection, statement, values or None)
        finally:
            connection.close()

    def install(self, wanted: Layout, *, may_truncate: bool = False, saboteur: Saboteur | None = None) -> None:
        with self.ours() as connection:
            apply(capture_steps(wanted, may_truncate=may_truncate, saboteur=saboteur), connection)
            if saboteur is None:
                faults = [each for each in verify(connection, wanted, may_truncate=may_truncate) if each.is_error]
                assert faults == []

    @contextmanager
    def ours(self) -> Iterator[Connection]:
        with connected(self.url, "test") as connection:
            yield connection

    def changes(self, row_key: UUID | None = None, column: str | None = None) -> list[Change]:
        """Queue and log together, by key."""
        found = self.sql(
            "SELECT row_key::text, column_name, ref_key, row, previous, origin FROM"
            " (SELECT row_key, column_name, ref_key, row, previous, origin FROM tripstore.queue UNION ALL"
            " SELECT row_key, column_name, ref_key, row, previous, origin FROM tripstore.log) AS changes"
            " WHERE (%s IS NULL OR row_key = %s::uuid) AND (%s IS NULL OR column_name = %s) ORDER BY 1, 2, 3",
            *[row_key and str(row_key)] * 2,
            *[column] * 2,
        )
        return [
            Change(UUID(key), name, ref_key, None if row is None else json.loads(row), previous, origin)
            for key, name, ref_key, row, previous, origin in found
        ]

    def versions(self, row_key: UUID, column: str = "BASE", *fields: str) -> list[Any]:
        """Ref keys with one field each, None for tombstones: [(1, "requested"), (2, None)]."""
        field = fields[0] if fields else {"BASE": "status", "STATUS": "result", "NOTES": "text"}[column]
        return [
            (change.ref_key, None if change.row is None else change.row[field])
            for change in self.changes(row_key, column)
        ]

    def trip(self, status: str = "requested", row_key: UUID | None = None) -> tuple[int, UUID]:
        key = row_key or uuid4()
        ((id_,),) = self.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) RETURNING id", str(key), status)
        return id_, key

    def deliver(self) -> None:
        """What a relay does with the queue."""
        self.sql(DELIVER)


def apply(steps: Sequence[SchemaStep], connection: Connection) -> list[bool]:
    """Whether each was done already."""
    found = []
    for step in steps:
        found.append(step.is_done(connection))
        if not found[-1]:
            step.apply(connection, lambda _done, _total: None)
            assert step.is_done(connection), step.title
    return found


def captured(server: PostgresServer, wanted: Layout | None = None, tables: str = TABLES) -> Legacy:
    """A company with capture installed: a copy of the first one of its layout and tables."""
    wanted = wanted or layout()
    key = (server.url, wanted.digest, tables)
    if key not in _TEMPLATES:
        with kept():
            first = Legacy(server, tables=tables)
        first.install(wanted)
        _TEMPLATES[key] = first.name
    return Legacy(server, template=_TEMPLATES[key])


def legacy_server(servers: LocalServers, flavour: Flavour) -> PostgresServer:
    """This run's server of a flavour, which other tests of the legacy store use too."""
    return postgres_server(servers, flavour)


@contextmanager
def refused(sqlstate: str) -> Iterator[pytest.ExceptionInfo[psycopg2.Error]]:
    """What capture raises: one sentence, and a hint."""
    with pytest.raises(psycopg2.Error) as caught:
        yield caught
    assert caught.value.pgcode == sqlstate, caught.value
    assert str(caught.value.diag.message_primary).endswith(".")
    assert caught.value.diag.message_hint


class Blocked:
    """A statement on a thread of its own, to be met while it waits for a lock."""

    def __init__(self, legacy: Legacy, connection: Connection, statement: str, *values: object) -> None:
        self._legacy = legacy
        self._pid = connection.info.backend_pid
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(rows, connection, statement, values or None)

    def wait_until_it_waits(self) -> None:
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
        while not self._legacy.sql(query, self._pid)[0][0]:
            assert not self._future.done(), "it did not wait"

    def result(self) -> list[tuple[Any, ...]]:
        try:
            return self._future.result(60)
        finally:
            self._pool.shutdown()
