"""Every committed change is captured, by any client in any way, and nothing that was rolled back (I8)."""

from __future__ import annotations

import io
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from tests.legacy import FLAVOURS, TABLES, Legacy, base, captured, layout, legacy_server, refused
from tripstore.backends.postgres import sqlstates
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
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

HOSTILE = [
    "SET TimeZone = 'Asia/Kolkata'; SET extra_float_digits = 0; SET DateStyle = 'German, DMY';"
    " SET bytea_output = escape",
    "SET TimeZone = 'America/St_Johns'; SET extra_float_digits = -15; SET DateStyle = 'SQL, MDY';"
    " SET IntervalStyle = sql_standard; SET standard_conforming_strings = off",
    "SET search_path = evil, pg_catalog; SET transform_null_equals = on; SET plan_cache_mode = force_custom_plan;"
    " SET plpgsql.extra_errors = 'all'",
]
#: Operators and functions that lie, in a schema that a session puts before pg_catalog.
EVIL = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.lie(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION evil.lie(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint';
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.lie);
CREATE OPERATOR evil.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.lie);
CREATE OPERATOR evil.+ (LEFTARG = bigint, RIGHTARG = int, FUNCTION = evil.lie);
CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'reverse' $$;
"""


@pytest.fixture(params=FLAVOURS)
def make(request: pytest.FixtureRequest, servers: LocalServers) -> Callable[..., Legacy]:
    flavour: Flavour = request.param
    return lambda **options: Legacy(legacy_server(servers, flavour), **options)


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    return captured(legacy_server(servers, request.param))


@pytest.mark.parametrize("settings", HOSTILE, ids=["digits", "styles", "path"])
def test_what_is_captured_does_not_depend_on_the_session(legacy: Legacy, settings: str) -> None:
    legacy.sql(EVIL)
    connection = legacy.connect(autocommit=True)
    keys = []
    for setting in ("SELECT 1", settings):
        rows(connection, setting)
        keys.append(uuid4())
        rows(
            connection,
            f"INSERT INTO public.trips (trip_uuid, distance, fare, request_at, status) SELECT '{keys[-1]}',"
            " 0.1::float8 + 0.2::float8, 1.10, timestamptz '2014-08-01 12:00:00.123456+00', 'x'",
        )
        rows(connection, f"UPDATE public.trips SET distance = 1e300 / 3, status = 'y' WHERE trip_uuid = '{keys[-1]}'")
    connection.close()

    first, second = ([(c.ref_key, c.row, c.previous, c.origin) for c in legacy.changes(key)] for key in keys)
    assert first == second
    assert [ref_key for ref_key, *_ in first] == [1, 2]
    assert first[0][1] is not None
    assert first[0][1]["distance"] == "0.30000000000000004"
    assert first[0][1]["request_at"] == "2014-08-01 12:00:00.123456+00"


def test_nothing_that_was_rolled_back_is_captured(legacy: Legacy) -> None:
    id_, key = legacy.trip("a")
    legacy.sql(
        f"BEGIN; UPDATE trips SET status = 'b' WHERE id = {id_}; SAVEPOINT s;"
        f"UPDATE trips SET status = 'lost' WHERE id = {id_}; DELETE FROM trips; ROLLBACK TO SAVEPOINT s;"
        f"UPDATE trips SET status = 'c' WHERE id = {id_}; COMMIT;"
        f"BEGIN; DELETE FROM trips WHERE id = {id_}; INSERT INTO trips (trip_uuid) VALUES ('{key}'); ROLLBACK"
    )

    assert legacy.versions(key) == [(1, "a"), (2, "b"), (3, "c")]
    assert legacy.sql("SELECT count(*) FROM tripstore.tomb") == [(0,)]


def test_all_ways_to_write_a_row_are_captured(legacy: Legacy) -> None:
    keys = sorted(uuid4() for _ in range(4))
    connection = legacy.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.copy_expert("COPY trips (trip_uuid, status) FROM STDIN", io.StringIO(f"{keys[0]}\ta\n{keys[1]}\tb\n"))
    connection.close()
    legacy.sql("INSERT INTO trips (trip_uuid, status) SELECT %s::uuid, 'c'", str(keys[2]))
    legacy.sql("CREATE VIEW seen AS SELECT id, trip_uuid, status FROM trips")
    legacy.sql("INSERT INTO seen (trip_uuid, status) VALUES (%s, 'd')", str(keys[3]))
    legacy.sql("UPDATE seen SET status = status || '2'")
    legacy.sql(
        "MERGE INTO trips t USING (SELECT unnest(%s::uuid[]) AS k) AS s ON t.trip_uuid = s.k"
        " WHEN MATCHED AND t.status = 'a2' THEN DELETE WHEN MATCHED THEN UPDATE SET status = 'm'",
        [str(key) for key in keys],
    )
    legacy.sql("WITH moved AS (UPDATE trips SET status = 'w' RETURNING id) SELECT count(*) FROM moved")
    legacy.sql("DO $$ BEGIN EXECUTE 'UPDATE trips SET status = ''x'''; END $$")

    assert legacy.versions(keys[0]) == [(1, "a"), (2, "a2"), (3, None)]
    for key, letter in zip(keys[1:], "bcd", strict=True):
        assert legacy.versions(key) == [(1, letter), (2, f"{letter}2"), (3, "m"), (4, "w"), (5, "x")]


def test_partitions_are_captured_when_they_are_written_themselves(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    for n in range(20):
        legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, 'a')", id_, n)
    for partition in ("notes_0", "notes_1"):
        legacy.sql(f"UPDATE {partition} SET text = 'b'")

    assert [text for _, text in legacy.versions(key, "NOTES")] == ["a", "b"] * 20


def test_a_role_without_rights_on_our_schema_writes_as_before(legacy: Legacy) -> None:
    role = f"service_{legacy.name}"
    legacy.sql(
        f"CREATE ROLE {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON trips, attempts, notes TO {role};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}; REVOKE ALL ON SCHEMA tripstore FROM PUBLIC"
    )
    key = uuid4()
    legacy.sql(
        f"SET ROLE {role}; INSERT INTO trips (trip_uuid, status) VALUES ('{key}', 'a'); UPDATE trips SET status = 'b';"
        "INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'x' FROM trips;"
        "INSERT INTO attempts (trip_id, attempt_no, result) SELECT id, 1, 'x' FROM trips; DELETE FROM trips"
    )

    assert legacy.versions(key) == [(1, "a"), (2, "b"), (3, None)]
    assert [ref_key for ref_key, _ in legacy.versions(key, "STATUS")] == [1, 2]


def test_sessions_that_replay_are_captured(legacy: Legacy) -> None:
    """`session_replication_role = replica` keeps ordinary triggers, and those of foreign keys, from firing."""
    id_, key = legacy.trip("a")
    legacy.sql(
        f"SET session_replication_role = replica; UPDATE trips SET status = 'b' WHERE id = {id_};"
        f"INSERT INTO notes (trip_id, n, text) VALUES ({id_}, 1, 'x'); DELETE FROM trips WHERE id = {id_};"
        "DELETE FROM notes"
    )

    assert legacy.versions(key) == [(1, "a"), (2, "b"), (3, None)]
    assert [text for _, text in legacy.versions(key, "NOTES")] == ["x", None]


def test_rows_that_logical_replication_applies_are_captured(make: Callable[..., Legacy]) -> None:
    """It fires no trigger for statements, and row triggers only when they are enabled always."""
    source, target = make(), make()
    target.install(layout())
    slot = f"slot_{target.name}"
    source.sql("CREATE PUBLICATION all_trips FOR TABLE trips")
    source.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    target.sql(
        f"CREATE SUBSCRIPTION {slot} CONNECTION '{source.url}' PUBLICATION all_trips"
        f" WITH (create_slot = false, slot_name = {slot}, copy_data = false)"
    )
    id_, key = source.trip("a")
    source.sql("UPDATE trips SET status = 'b'")
    source.sql("DELETE FROM trips")
    expected = [(1, "a"), (2, "b"), (3, None)]
    try:
        while target.versions(key) != expected:  # until the test's own time limit
            assert len(target.versions(key)) <= len(expected)
    finally:
        target.sql(f"ALTER SUBSCRIPTION {slot} DISABLE")
        target.sql(f"ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)")
        target.sql(f"DROP SUBSCRIPTION {slot}")

    assert id_ == 1


def test_the_log_knows_the_transaction_and_the_layout(legacy: Legacy) -> None:
    connection = legacy.connect()
    ((xid,),) = rows(connection, "SELECT pg_current_xact_id()::text")
    rows(connection, "INSERT INTO trips (status) VALUES ('a'), ('b')")
    connection.commit()
    connection.close()

    found = legacy.sql("SELECT xid::text, layout, at > now() - interval '1 minute' FROM tripstore.queue ORDER BY id")
    assert found == [(xid, 1, True)] * 2


def test_a_change_of_a_large_value_is_seen_and_an_equal_one_is_not(legacy: Legacy) -> None:
    id_, key = legacy.trip("x" * 1_000_000)
    legacy.sql("UPDATE trips SET status = repeat('x', 1000000), memo = 'm' WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = repeat('x', 999999) || 'y' WHERE id = %s", id_)

    assert [ref_key for ref_key, _ in legacy.versions(key)] == [1, 2]


def test_generated_columns_are_captured_as_they_are_after_the_change(make: Callable[..., Legacy]) -> None:
    """A BEFORE trigger cannot see them: what they are made of is looked at."""
    legacy = make()
    legacy.sql("ALTER TABLE trips ADD double_fare numeric GENERATED ALWAYS AS (length(memo) * 2) STORED")
    legacy.install(layout(base(DeletePolicy.TOMBSTONE, Field("double", "double_fare", FieldType.DECIMAL))))
    id_, key = legacy.trip()
    legacy.sql("UPDATE trips SET memo = 'abc' WHERE id = %s", id_)

    assert legacy.versions(key, "BASE", "double_fare") == [(1, None), (2, "6")]


def test_names_that_need_quotes_are_captured(make: Callable[..., Legacy]) -> None:
    legacy = make(
        tables='CREATE SCHEMA "S%"; CREATE TABLE "S%"."T \'r\\i"" p$capture$" ("I d%" bigint PRIMARY KEY,'
        ' "U\'u" uuid NOT NULL UNIQUE, "a b%" text, "p\\" int);'
        'CREATE TABLE "S%"."p%" ("k%" int PRIMARY KEY, "v\'" uuid NOT NULL)'
    )
    table = TableName("S%", "T 'r\\i\" p$capture$")
    pair = Lookup(TableName("S%", "p%"), "k%", "v'")
    fields = (Field("a", "a b%", FieldType.STRING), Field("p", "p\\", FieldType.UUID, pair))
    column = MappedColumn("Base 'é%", table, "U'u", None, RefKeySource(version="v %s"), fields)
    legacy.install(Layout("d'%", RowKeySource(table, "I d%", "U'u"), {column.name: column}))
    key: UUID = uuid4()
    connection = legacy.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table.sql} VALUES (1, '{key}', 'x')")
        cursor.execute(f"UPDATE {table.sql} SET \"a b%\" = 'y'")
        with refused(sqlstates.KEY_CHANGED):
            cursor.execute(f'UPDATE {table.sql} SET "I d%" = 2')
        with refused(sqlstates.TRUNCATE_REFUSED):
            cursor.execute(f"TRUNCATE {table.sql}")
        cursor.execute(f"DELETE FROM {table.sql}")
        cursor.execute('INSERT INTO "S%"."p%" VALUES (1, gen_random_uuid())')
        with refused(sqlstates.PAIR_CHANGED):
            cursor.execute('UPDATE "S%"."p%" SET "k%" = 2')
        cursor.execute('DELETE FROM "S%"."p%"')
        with refused(sqlstates.PAIR_CHANGED):
            cursor.execute('INSERT INTO "S%"."p%" VALUES (1, gen_random_uuid())')
    connection.close()

    assert legacy.versions(key, "Base 'é%", "a b%") == [(1, "x"), (2, "y"), (3, None)]


def test_a_value_may_be_given_to_a_row_that_had_none_and_is_for_ever_then(make: Callable[..., Legacy]) -> None:
    legacy = make(tables=TABLES.replace("user_uuid uuid NOT NULL UNIQUE", "user_uuid uuid UNIQUE"))
    legacy.install(layout())
    legacy.sql("INSERT INTO users (id, name) VALUES (77, 'x')")
    legacy.sql("UPDATE users SET user_uuid = gen_random_uuid() WHERE id = 77")
    with refused(sqlstates.PAIR_CHANGED):
        legacy.sql("UPDATE users SET user_uuid = gen_random_uuid() WHERE id = 77")

    assert legacy.sql("SELECT count(*) FROM users WHERE id = 77 AND user_uuid IS NOT NULL") == [(1,)]
