"""The versions that capture gives: one body per ref key, whoever writes and whatever comes in between (I2, I8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg2
import pytest
from psycopg2 import errors

from tests.legacy import (
    FLAVOURS,
    MOVING_TABLE,
    TABLES,
    Blocked,
    Legacy,
    apply,
    attempts,
    base,
    captured,
    layout,
    legacy_server,
    moving_layout,
    notes,
    refused,
)
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.layout.layout import NUMBER_MAX, VERSION_BITS, VERSION_MAX, DeletePolicy
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.fixture(params=FLAVOURS)
def make(request: pytest.FixtureRequest, servers: LocalServers) -> Callable[..., Legacy]:
    """Databases on one flavour of Postgres."""
    flavour: Flavour = request.param
    return lambda **options: Legacy(legacy_server(servers, flavour), **options)


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    return captured(legacy_server(servers, flavour))


def note(n: int, version: int) -> int:
    return n << VERSION_BITS | version


def put_as(legacy: Legacy, origin: str, *statements: str) -> None:
    """One transaction of the facade's or the reverse mirror's."""
    connection = legacy.connect()
    try:
        rows(connection, "SELECT set_config('tripstore.origin', %s, true)", (origin,))
        for statement in statements:
            rows(connection, statement)
        connection.commit()
    finally:
        connection.close()


# --- one row with versions ---


def test_a_change_of_captured_columns_is_the_next_version_whatever_the_writer_wrote(legacy: Legacy) -> None:
    id_, key = legacy.trip("requested")
    legacy.sql("UPDATE trips SET status = 'a' WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = 'b', base_version = 1 WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = 'c', base_version = 77 WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = 'd', base_version = NULL WHERE id = %s", id_)
    legacy.sql(
        "INSERT INTO trips (id, trip_uuid, status) VALUES (%s, %s, 'e')"
        " ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status, base_version = EXCLUDED.base_version",
        id_,
        str(key),
    )

    assert legacy.versions(key) == [(1, "requested"), (2, "a"), (3, "b"), (4, "c"), (5, "d"), (6, "e")]
    assert [change.previous for change in legacy.changes(key)] == [None, 1, 2, 3, 4, 5]


def test_what_is_not_captured_makes_no_version(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("UPDATE trips SET memo = 'x' WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = status, base_version = 40 WHERE id = %s", id_)
    legacy.sql("INSERT INTO trips (id, trip_uuid) VALUES (%s, %s) ON CONFLICT DO NOTHING", id_, str(key))

    assert legacy.versions(key) == [(1, "requested")]
    assert legacy.sql("SELECT base_version FROM trips") == [(1,)]


def test_versions_tell_values_apart_that_are_equal(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    for assignment in ["fare = 1.10", "fare = 1.1", "distance = 0", "distance = '-0'", "distance = '-0'"]:
        legacy.sql(f"UPDATE trips SET {assignment} WHERE id = %s", id_)

    assert legacy.versions(key, "BASE", "fare") == [(1, None), (2, "1.10"), *((n, "1.1") for n in (3, 4, 5))]
    assert legacy.versions(key, "BASE", "distance")[2:] == [(3, None), (4, "0"), (5, "-0")]


def test_the_facade_says_its_version_and_it_must_rise(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    put_as(legacy, "facade", f"UPDATE trips SET status = 'a', base_version = 50 WHERE id = {id_}")
    put_as(legacy, "facade", f"UPDATE trips SET base_version = 60 WHERE id = {id_}")
    with refused(sqlstates.VERSION_STANDS):
        put_as(legacy, "facade", f"UPDATE trips SET status = 'b', base_version = 59 WHERE id = {id_}")
    legacy.sql("UPDATE trips SET status = 'c' WHERE id = %s", id_)

    assert legacy.versions(key) == [(1, "requested"), (50, "a"), (60, "a"), (61, "c")]
    assert [change.origin for change in legacy.changes(key)] == [None, "facade", "facade", None]


def test_a_trigger_of_the_companys_may_change_rows_within_a_put(legacy: Legacy) -> None:
    """Its statements do not know of versions: they get the next one, as everywhere."""
    legacy.sql(
        "CREATE FUNCTION count_attempts() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE trips SET status = 'tried' WHERE id = NEW.trip_id; RETURN NULL; END $$;"
        "CREATE TRIGGER count_attempts AFTER INSERT ON attempts FOR EACH ROW EXECUTE FUNCTION count_attempts()"
    )
    id_, key = legacy.trip()
    put_as(legacy, "facade", f"INSERT INTO attempts (trip_id, attempt_no, result) VALUES ({id_}, 1, 'ok')")

    assert legacy.versions(key) == [(1, "requested"), (2, "tried")]
    assert legacy.changes(key, "BASE")[1].origin == "facade"


def test_the_reverse_mirror_is_logged_and_never_queued(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.deliver()
    put_as(
        legacy,
        "reverse",
        f"UPDATE trips SET status = 'a', base_version = 9 WHERE id = {id_}",
        f"INSERT INTO notes (trip_id, n, text, note_version) VALUES ({id_}, 1, 'x', 4)",
        f"DELETE FROM notes WHERE trip_id = {id_}",
    )

    assert legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]
    assert legacy.versions(key) == [(1, "requested"), (9, "a")]
    assert legacy.versions(key, "NOTES") == [(note(1, 4), "x"), (note(1, 5), None)]
    assert legacy.sql("SELECT count(*) FROM tripstore.log WHERE delivered_at IS NULL OR id IS NULL") == [(0,)]


def test_a_tombstone_of_the_facade_stands_where_it_was_put(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'x')", id_)
    said = "SELECT set_config('tripstore.tombstone', '{}', true)"
    with refused(sqlstates.VERSION_STANDS):
        put_as(legacy, "facade", said.format("1 BASE"), f"DELETE FROM trips WHERE id = {id_}")
    put_as(legacy, "facade", said.format("90 BASE"), f"DELETE FROM trips WHERE id = {id_}")

    assert legacy.versions(key) == [(1, "requested"), (90, None)]
    assert legacy.versions(key, "NOTES") == [(note(1, 0), "x"), (note(1, 1), None)]


def test_a_tombstone_of_a_child_row_keeps_its_number(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'x')", id_)
    delete = f"DELETE FROM notes WHERE trip_id = {id_}"
    with refused(sqlstates.VERSION_STANDS):
        put_as(legacy, "facade", f"SELECT set_config('tripstore.tombstone', '{note(2, 0)} NOTES', true)", delete)
    put_as(legacy, "facade", f"SELECT set_config('tripstore.tombstone', '{note(1, 8)} NOTES', true)", delete)

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "x"), (note(1, 8), None)]


# --- rows that come back ---


def test_a_row_that_comes_back_starts_above_its_tombstone(legacy: Legacy) -> None:
    id_, key = legacy.trip("a")
    for status in ("b", "c"):
        legacy.sql("DELETE FROM trips WHERE id = %s", id_)
        legacy.deliver()
        id_, _ = legacy.trip(status, key)

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b"), (4, None), (5, "c")]
    assert [change.previous for change in legacy.changes(key)] == [None, 1, 2, 3, 4]
    assert legacy.sql("SELECT base_version FROM trips") == [(5,)]


def test_delete_and_insert_in_one_transaction_or_statement(legacy: Legacy) -> None:
    id_, key = legacy.trip("a")
    legacy.sql(
        f"DELETE FROM trips WHERE id = {id_}; INSERT INTO trips (id, trip_uuid, status) VALUES (1, '{key}', 'b')"
    )
    legacy.sql(
        "WITH gone AS (DELETE FROM trips RETURNING id, trip_uuid)"
        " INSERT INTO trips (id, trip_uuid, status) SELECT id, trip_uuid, 'c' FROM gone"
    )

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b"), (4, None), (5, "c")]


def raced_reinsert(legacy: Legacy, isolation: str) -> UUID:
    """An INSERT that waits for the DELETE of the row, and was begun before it was committed."""
    id_, key = legacy.trip("a")
    legacy.sql("UPDATE trips SET status = 'b' WHERE id = %s", id_)
    deleting, inserting = legacy.connect(), legacy.connect(isolation=isolation)
    try:
        rows(inserting, "SELECT count(*) FROM users")  # the snapshot
        rows(deleting, "DELETE FROM trips WHERE id = %s", (id_,))
        waiting = Blocked(legacy, inserting, "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'c')", str(key))
        waiting.wait_until_it_waits()
        deleting.commit()
        waiting.result()
        inserting.commit()
    finally:
        deleting.close()
        inserting.close()
    return key


def test_an_insert_that_waited_for_the_deletion_is_lifted_above_it(legacy: Legacy) -> None:
    key = raced_reinsert(legacy, "READ COMMITTED")

    assert legacy.versions(key) == [(1, "a"), (2, "b"), (3, None), (4, "c")]
    assert [change.previous for change in legacy.changes(key)] == [None, 1, 2, 3]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_insert_whose_snapshot_cannot_see_the_tombstone_is_to_be_repeated(legacy: Legacy, isolation: str) -> None:
    with pytest.raises(errors.SerializationFailure):
        raced_reinsert(legacy, isolation)


def test_looking_for_tombstones_leaves_nothing_behind(legacy: Legacy) -> None:
    for isolation in ("REPEATABLE READ", "SERIALIZABLE"):
        connection = legacy.connect(isolation=isolation)
        rows(connection, "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'x')", (str(uuid4()),))
        connection.commit()
        connection.close()

    assert legacy.sql("SELECT count(*) FROM tripstore.tomb") == [(0,)]
    assert [change.ref_key for change in legacy.changes()] == [1, 1]


def before_insert_alone(made: list[Made]) -> list[Made]:
    """The obvious design: the tomb is looked up before the INSERT, never again."""
    found = []
    for function, trigger in made:
        if function.name == "base_insert":
            look = (
                "NEW.base_version := 1 + COALESCE((SELECT t.ref_key FROM tripstore.tomb t WHERE"
                " t.row_key = NEW.trip_uuid AND t.column_name = 'BASE'), 0);\n  RETURN NEW;"
            )
            body = function.body.replace("  RETURN NEW;", "  " + look)
            assert trigger is not None
            function, trigger = replace(function, body=body), replace(trigger, when=None)
        if function.name == "base_inserted":
            body = function.body.replace("WHERE f.floor IS NULL OR f.floor < (NEW.", "WHERE true OR 0 < (NEW.")
            assert body != function.body
            function = replace(function, body=body)
        found.append((function, trigger))
    return found


def test_control_versions_from_before_insert_alone_collide(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.install(layout(), saboteur=before_insert_alone)
    with pytest.raises(errors.UniqueViolation) as caught:
        raced_reinsert(legacy, "READ COMMITTED")
    assert caught.value.diag.constraint_name == "queue_pkey"  # which guards only what is not delivered yet

    id_, key = legacy.trip("a")
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    legacy.trip("b", key)
    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]  # one after the other it is right


def test_a_row_that_is_changed_before_it_is_lifted_has_one_version_above_its_tombstone(legacy: Legacy) -> None:
    """An AFTER INSERT trigger of the company's updates the row, in rows whose own AFTER INSERT has not run yet."""
    legacy.sql(
        "CREATE FUNCTION all_new() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE trips SET status = status || '!'; RETURN NULL; END $$;"
        "CREATE TRIGGER all_new AFTER INSERT ON trips FOR EACH ROW EXECUTE FUNCTION all_new()"
    )
    keys = sorted([uuid4(), uuid4()])
    insert = "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'a'), (%s, 'b')"
    legacy.sql(insert, *map(str, keys))
    legacy.sql("DELETE FROM trips")
    before = {(change.row_key, change.ref_key) for change in legacy.changes()}
    legacy.deliver()
    legacy.sql(insert, *map(str, keys))

    now = [(change.row_key, change.ref_key) for change in legacy.changes()]
    assert len(now) == len(set(now))
    for row_key, version, status in legacy.sql("SELECT trip_uuid::text, base_version, status FROM trips"):
        assert legacy.versions(UUID(row_key))[-1] == (version, status)
        assert version > max(ref_key for key, ref_key in before if key == UUID(row_key))


def test_a_facades_insert_below_the_tombstone_starts_again(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    insert = f"INSERT INTO trips (trip_uuid, status, base_version) VALUES ('{key}', 'x', {{}})"
    with refused(sqlstates.BELOW_TOMBSTONE):
        put_as(legacy, "facade", insert.format(2))
    put_as(legacy, "facade", insert.format(3))

    assert legacy.versions(key) == [(1, "requested"), (2, None), (3, "x")]


# --- child rows that change ---


def test_child_rows_have_versions_from_zero_and_a_tombstone_each(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text, note_version) VALUES (%s, 1, 'a', 9), (%s, 2, 'b', 3)", id_, id_)
    legacy.sql("UPDATE notes SET text = 'c' WHERE n = 1")
    legacy.sql("DELETE FROM notes WHERE n = 1")
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'd')", id_)

    assert legacy.versions(key, "NOTES") == [
        (note(1, 0), "a"),
        (note(1, 1), "c"),
        (note(1, 2), None),
        (note(1, 3), "d"),
        (note(2, 0), "b"),
    ]
    previous = [change.previous for change in legacy.changes(key, "NOTES")]
    assert previous == [None, note(1, 0), note(1, 1), note(1, 2), None]


def test_numbers_and_versions_that_no_ref_key_holds_are_refused(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    for n in (-1, NUMBER_MAX + 1):
        with refused(sqlstates.OUT_OF_RANGE):
            legacy.sql("INSERT INTO notes (trip_id, n) VALUES (%s, %s)", id_, n)
    insert = "INSERT INTO notes (trip_id, n, text, note_version) VALUES ({}, {}, 'a', {})"
    with refused(sqlstates.OUT_OF_RANGE):
        put_as(legacy, "facade", insert.format(id_, NUMBER_MAX, VERSION_MAX + 1))
    put_as(legacy, "facade", insert.format(id_, NUMBER_MAX, VERSION_MAX))
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("UPDATE notes SET text = 'b'")
    with refused(sqlstates.OUT_OF_RANGE):
        put_as(legacy, "facade", f"UPDATE notes SET text = 'b', note_version = {VERSION_MAX + 1}")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("DELETE FROM notes")
    legacy.sql("UPDATE notes SET memo = 'b'")

    assert legacy.versions(key, "NOTES") == [((1 << 62) - 1, "a")]


def test_a_version_that_bigint_cannot_exceed_is_refused(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    last = (1 << 63) - 1
    put_as(legacy, "facade", f"UPDATE trips SET status = 'a', base_version = {last} WHERE id = {id_}")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("UPDATE trips SET status = 'b'")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("DELETE FROM trips")

    assert legacy.versions(key) == [(1, "requested"), (last, "a")]


# --- facts ---


def facts(legacy: Legacy, *numbers: int) -> tuple[int, UUID]:
    id_, key = legacy.trip()
    for n in numbers:
        legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, %s, 'ok')", id_, n)
    return id_, key


def test_facts_do_not_change_and_do_not_go_alone(legacy: Legacy) -> None:
    _, key = facts(legacy, 1, 2)
    with refused(sqlstates.FACT_CHANGED):
        legacy.sql("UPDATE attempts SET result = 'x' WHERE attempt_no = 1")
    with refused(sqlstates.DELETE_REFUSED):
        legacy.sql("DELETE FROM attempts WHERE attempt_no = 1")
    legacy.sql("UPDATE attempts SET memo = 'x'")

    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok")]


def test_facts_get_one_tombstone_above_their_highest_when_the_parent_goes(legacy: Legacy) -> None:
    id_, key = facts(legacy, 4, 1, 7, 3)
    _, other_key = facts(legacy, 1)
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)

    assert legacy.versions(key, "STATUS") == [(1, "ok"), (3, "ok"), (4, "ok"), (7, "ok"), (8, None)]
    assert legacy.changes(key, "STATUS")[-1].previous == 7
    assert legacy.sql("SELECT ref_key FROM tripstore.tomb WHERE column_name = 'STATUS'") == [(8,)]
    assert legacy.versions(other_key, "STATUS") == [(1, "ok")]


def test_a_savepoint_takes_the_tombstone_of_facts_back(legacy: Legacy) -> None:
    id_, key = facts(legacy, 1, 2)
    legacy.sql(
        f"BEGIN; SAVEPOINT a; DELETE FROM trips WHERE id = {id_}; ROLLBACK TO SAVEPOINT a;"
        f"INSERT INTO attempts (trip_id, attempt_no, result) VALUES ({id_}, 3, 'ok');"
        f"DELETE FROM trips WHERE id = {id_}; COMMIT"
    )

    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok"), (3, "ok"), (4, None)]


@pytest.mark.parametrize("between", ["", "; COMMIT; BEGIN"])
def test_facts_without_a_foreign_key_go_in_several_statements(legacy: Legacy, between: str) -> None:
    """In whatever order, in one transaction or several: one tombstone, above all that there ever were."""
    legacy.sql("ALTER TABLE attempts DROP CONSTRAINT attempts_trip_id_fkey")
    for order in ([1, 2, 5], [5, 2, 1], [2, 5, 1]):
        id_, key = facts(legacy, 1, 2, 5)
        deletions = [f"DELETE FROM attempts WHERE trip_id = {id_} AND attempt_no = {n}{between}" for n in order]
        legacy.sql(f"BEGIN; DELETE FROM trips WHERE id = {id_}{between}; {'; '.join(deletions)}; COMMIT")
        legacy.deliver()

        assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok"), (5, "ok"), (6, None)]


def test_a_fact_under_a_tombstone_is_refused(legacy: Legacy) -> None:
    id_, key = facts(legacy, 1, 2)
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    legacy.deliver()
    id_, _ = legacy.trip("again", key)
    insert = "INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, %s, 'x')"
    for n in (1, 2, 3):
        with refused(sqlstates.BELOW_TOMBSTONE):
            legacy.sql(insert, id_, n)
    legacy.sql(insert, id_, 4)
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)

    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok"), (3, None), (4, "x"), (5, None)]
    assert legacy.changes(key, "STATUS")[3].previous == 3


# --- keys ---


def test_row_keys_are_for_ever(legacy: Legacy) -> None:
    id_, _ = facts(legacy, 1)
    other, other_key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    for statement in (
        f"UPDATE trips SET id = 9999 WHERE id = {other}",
        f"UPDATE trips SET trip_uuid = gen_random_uuid() WHERE id = {other}",
        f"UPDATE attempts SET trip_id = {other}",
        f"UPDATE attempts SET trip_uuid = '{other_key}'",
        "UPDATE attempts SET attempt_no = 2",
        f"UPDATE notes SET trip_uuid = '{other_key}'",
        "UPDATE notes SET n = 2",
    ):
        with refused(sqlstates.KEY_CHANGED):
            legacy.sql(statement)


def test_a_child_carries_the_key_of_its_parent(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO attempts (trip_id, attempt_no) VALUES (%s, 1)", id_)
    legacy.sql("INSERT INTO notes (trip_id, n, trip_uuid) VALUES (%s, 1, %s)", id_, str(key))
    with refused(sqlstates.WRONG_PARENT):
        legacy.sql("INSERT INTO attempts (trip_id, attempt_no, trip_uuid) VALUES (%s, 2, gen_random_uuid())", id_)
    with refused(sqlstates.NO_PARENT) as error:
        legacy.sql("INSERT INTO attempts (trip_id, attempt_no) VALUES (4711, 1)")

    assert "attempts" in str(error.value)
    assert (
        legacy.sql("SELECT trip_uuid::text FROM attempts UNION ALL SELECT trip_uuid::text FROM notes")
        == [(str(key),)] * 2
    )


# --- what a layout says of deletions ---


def test_ignored_deletions_make_no_tombstone_and_the_next_row_starts_above(make: Callable[..., Legacy]) -> None:
    legacy, ignore = make(), DeletePolicy.IGNORE
    legacy.install(layout(base(ignore), attempts(ignore), notes(ignore)))
    id_, key = facts(legacy, 1, 2)
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    legacy.deliver()
    id_, _ = legacy.trip("again", key)
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'b')", id_)
    insert = "INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, %s, 'x')"
    with refused(sqlstates.BELOW_TOMBSTONE):
        legacy.sql(insert, id_, 2)
    legacy.sql(insert, id_, 3)

    assert legacy.versions(key) == [(1, "requested"), (2, "again")]
    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), "b")]
    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok"), (3, "x")]
    assert legacy.sql("SELECT count(*) FROM tripstore.tomb") == [(0,)]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM trips", "TRUNCATE trips, attempts, notes", "all, then some come back"]
)
def test_i12_each_fact_whose_deletion_is_ignored_is_remembered(make: Callable[..., Legacy], statement: str) -> None:
    """A diff takes no other one for it. The control: a statement that is taken back leaves nothing."""
    legacy, ignore = make(), DeletePolicy.IGNORE
    legacy.install(layout(base(ignore), attempts(ignore), notes(ignore)), may_truncate=True)
    _, key = facts(legacy, 1, 2, 5)
    kept = "SELECT n, ref_key FROM tripstore.kept WHERE column_name = 'STATUS' ORDER BY n"
    if statement.startswith("all"):
        statement = "DELETE FROM trips"
        legacy.sql(f"BEGIN; SAVEPOINT s; {statement}; ROLLBACK TO s; DELETE FROM notes; COMMIT")
        assert legacy.sql(kept) == []
    legacy.sql(statement)

    assert legacy.sql(kept) == [(-6, 5), (-3, 2), (-2, 1), (0, 5)]
    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, "ok"), (5, "ok")]


@pytest.mark.parametrize("table", ["trips", "notes", "attempts"])
def test_forbidden_deletions_are_refused(make: Callable[..., Legacy], table: str) -> None:
    legacy = make()
    forbid = {name: DeletePolicy.FORBID if name == table else DeletePolicy.TOMBSTONE for name in FORBIDDABLE}
    legacy.install(layout(base(forbid["trips"]), attempts(forbid["attempts"]), notes(forbid["notes"])))
    id_, key = facts(legacy, 1)
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    with refused(sqlstates.DELETE_REFUSED):
        legacy.sql(f"DELETE FROM {table}")
    with refused(sqlstates.DELETE_REFUSED):  # its children forbid it
        legacy.sql("DELETE FROM trips")

    assert [change.row for change in legacy.changes(key)].count(None) == 0


FORBIDDABLE = ("trips", "attempts", "notes")


def test_truncation_is_refused(legacy: Legacy) -> None:
    legacy.trip()
    for table in ("trips CASCADE", "notes", "notes_0", "attempts"):
        with refused(sqlstates.TRUNCATE_REFUSED):
            legacy.sql(f"TRUNCATE {table}")


def test_an_allowed_truncation_ends_the_word_of_capture_and_rows_start_above(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.install(layout(), may_truncate=True)
    id_, key = facts(legacy, 1)
    legacy.sql("UPDATE trips SET status = 'b'")
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    legacy.sql("TRUNCATE trips CASCADE")
    legacy.deliver()
    ((since, broken),) = legacy.sql("SELECT since, broken FROM tripstore.capture")
    id_, _ = legacy.trip("again", key)
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'b')", id_)

    assert since is None
    assert "trips was truncated" in broken
    assert "notes was truncated" in broken
    assert legacy.versions(key) == [(1, "requested"), (2, "b"), (3, "again")]
    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), "b")]
    with refused(sqlstates.BELOW_TOMBSTONE):
        legacy.sql("INSERT INTO attempts (trip_id, attempt_no) VALUES (%s, 1)", id_)


# --- pairs ---


def test_looked_up_pairs_never_change(legacy: Legacy) -> None:
    with refused(sqlstates.PAIR_CHANGED):
        legacy.sql("UPDATE users SET user_uuid = gen_random_uuid() WHERE id = 1")
    with refused(sqlstates.PAIR_CHANGED):
        legacy.sql("UPDATE users SET id = 9 WHERE id = 1")
    legacy.sql("UPDATE users SET name = 'z' WHERE id = 1")


def test_a_deleted_pair_is_remembered_and_its_key_is_not_given_to_another(legacy: Legacy) -> None:
    """A change that is not delivered yet points to it: it must be rendered as on the day it was made (I2)."""
    legacy.sql("DELETE FROM users WHERE id = 1")
    with refused(sqlstates.PAIR_CHANGED):
        legacy.sql("INSERT INTO users VALUES (1, gen_random_uuid(), 'other')")
    legacy.sql("INSERT INTO users VALUES (1, '11111111-1111-1111-1111-111111111111', 'the same')")

    assert legacy.sql("SELECT lookup, key, value FROM tripstore.pair") == [
        ("public.users.id.user_uuid", "1", "11111111-1111-1111-1111-111111111111")
    ]


# --- rows that move to another partition ---


@pytest.fixture
def moving(make: Callable[..., Legacy]) -> Legacy:
    legacy = make(tables=MOVING_TABLE)
    with legacy.ours() as connection:
        for step in capture_steps(moving_layout()):
            step.apply(connection, lambda _done, _total: None)
    return legacy


def with_moving_notes(make: Callable[..., Legacy]) -> Legacy:
    """Children whose partition is not decided by their keys."""
    tables = TABLES.replace("n bigint NOT NULL,", "n bigint NOT NULL, region int NOT NULL,").replace(
        "PRIMARY KEY (trip_id, n)\n) PARTITION BY HASH (trip_id)",
        "PRIMARY KEY (trip_id, n, region)\n) PARTITION BY LIST (region)",
    )
    for number in (0, 1):
        tables = tables.replace(f"WITH (MODULUS 2, REMAINDER {number})", f"IN ({number + 1})")
    legacy = make(tables=tables)
    with legacy.ours() as connection:
        apply(capture_steps(layout()), connection)
    return legacy


def test_a_row_that_moves_to_another_partition_is_not_deleted(moving: Legacy) -> None:
    key = uuid4()
    moving.sql("INSERT INTO trips VALUES (1, %s, 1, 'a')", str(key))
    moving.sql("UPDATE trips SET region = 2, status = 'b'")
    moving.sql("UPDATE trips SET region = 1")
    moving.sql("UPDATE trips SET status = 'c'")
    put_as(moving, "facade", "UPDATE trips SET region = 2, status = 'd', base_version = 5")
    moving.sql("DELETE FROM trips")
    moving.deliver()
    moving.sql("INSERT INTO trips VALUES (1, %s, 1, 'e')", str(key))

    assert moving.versions(key) == [(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "d"), (6, None), (7, "e")]
    assert [change.previous for change in moving.changes(key)] == [None, 1, 2, 3, 4, 5, 6]
    assert moving.sql("SELECT ref_key FROM tripstore.tomb") == [(6,)]


def test_several_rows_move_in_one_statement(moving: Legacy) -> None:
    keys = sorted(uuid4() for _ in range(3))
    for id_, key in enumerate(keys):
        moving.sql("INSERT INTO trips VALUES (%s, %s, 1, 'a')", id_, str(key))
    moving.sql("UPDATE trips SET region = 2, status = 'b'")

    assert [moving.versions(key) for key in keys] == [[(1, "a"), (2, "b")]] * 3


def test_i8_a_child_that_comes_after_another_has_moved_is_captured(make: Callable[..., Legacy]) -> None:
    """One transaction moves a child to another partition, and inserts another of the same parent."""
    legacy = with_moving_notes(make)
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, region, text) VALUES (%s, 2, 1, 'a')", id_)
    legacy.sql(
        "UPDATE notes SET region = 2;"
        "INSERT INTO notes (trip_id, n, region, text) SELECT id, v, 1, 'b' FROM trips, (VALUES (1), (3)) AS v (v)"
    )
    legacy.sql("UPDATE notes SET text = 'c' WHERE n = 1")

    expected = [(note(1, 0), "b"), (note(1, 1), "c"), (note(2, 0), "a"), (note(2, 1), "a"), (note(3, 0), "b")]
    assert legacy.versions(key, "NOTES") == expected
    assert [change.previous for change in legacy.changes(key, "NOTES")] == [None, note(1, 0), None, note(2, 0), None]


# --- triggers beside ours ---


def test_a_version_that_is_set_after_it_was_decided_is_refused(legacy: Legacy) -> None:
    legacy.sql(
        "CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.base_version := 0; RETURN NEW; END $$;"
        'CREATE TRIGGER "~~late" BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION stubborn()'
    )
    _, key = legacy.trip()
    with refused(sqlstates.VERSION_STANDS):
        legacy.sql("UPDATE trips SET status = 'b'")

    assert legacy.versions(key) == [(1, "requested")]


def test_a_row_that_is_deleted_before_it_was_lifted_is_told_once(legacy: Legacy) -> None:
    """A company's trigger deletes what it does not want, in the statement that inserts it."""
    legacy.sql(
        "CREATE FUNCTION unwanted() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN DELETE FROM trips WHERE status = 'bad'; RETURN NULL; END $$;"
        "CREATE TRIGGER unwanted AFTER INSERT ON trips FOR EACH ROW EXECUTE FUNCTION unwanted()"
    )
    keys = [uuid4(), uuid4()]
    insert = "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'good'), (%s, 'bad')"
    for _ in range(2):
        legacy.sql(insert, *map(str, keys))
        legacy.sql("DELETE FROM trips")
        legacy.deliver()

    for key in keys:
        seen = [ref_key for ref_key, _ in legacy.versions(key)]
        assert len(seen) == len(set(seen))
        assert legacy.versions(key)[-1][1] is None


def test_the_error_of_a_wrong_statement_is_the_services_own(legacy: Legacy) -> None:
    with pytest.raises(psycopg2.errors.ForeignKeyViolation):
        legacy.sql("INSERT INTO trips (driver_id) VALUES (99)")
