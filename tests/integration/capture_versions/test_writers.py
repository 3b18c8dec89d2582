"""The versions that capture gives: one body per ref key, whichever client writes (I2, I8)."""

from __future__ import annotations

from uuid import uuid4

import psycopg2
import pytest

from tests.integration.capture_versions.rows import note, put_as
from tests.legacy import (
    Legacy,
    refused,
)
from tripstore.backends.postgres import sqlstates


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


def test_a_put_of_a_lower_version_is_told_that_it_is_history(legacy: Legacy) -> None:
    """It is refused before any trigger of the company's sees it."""
    legacy.trip()
    legacy.sql("UPDATE trips SET status = 'b'")

    with refused(sqlstates.VERSION_STANDS) as caught:
        put_as(legacy, "facade", "UPDATE trips SET status = 'old', base_version = 1")
    assert "has version 2 and was sent version 1" in str(caught.value)


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
