"""A row that comes back starts above its tombstone, whatever intervenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from psycopg2 import errors

from tests.integration.capture_versions.rows import put_as
from tests.legacy import (
    Blocked,
    Legacy,
    layout,
    refused,
)
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.wire.connections import rows


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
