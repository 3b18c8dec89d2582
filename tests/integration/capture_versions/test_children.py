"""Child rows: versions and numbers of those that change, and facts, which do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.capture_versions.rows import facts, note, put_as
from tests.legacy import (
    TABLES,
    Legacy,
    apply,
    layout,
    refused,
)
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.layout.layout import NUMBER_MAX, VERSION_MAX


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


def test_where_a_child_begins_neither_another_ones_tombstone_nor_another_columns_cell_says(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    insert = "INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, 'a')"
    legacy.sql(insert, id_, 2)
    legacy.sql("DELETE FROM notes")
    cell = "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s, 'FREE', %s, '1')"
    legacy.sql(cell, str(key), note(1, 5))

    legacy.sql(insert, id_, 1)

    assert legacy.versions(key, "NOTES")[0] == (note(1, 0), "a")


def test_a_row_does_not_come_back_above_the_last_version(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    last = (1 << 63) - 1
    put_as(legacy, "facade", f"UPDATE trips SET status = 'a', base_version = {last - 1} WHERE id = {id_}")
    legacy.sql("DELETE FROM trips")
    with refused(sqlstates.OUT_OF_RANGE) as caught:
        legacy.trip("again", key)

    assert f"is at version {last}, and there is none after" in str(caught.value)
    assert legacy.versions(key)[-1] == (last, None)


def test_a_version_that_bigint_cannot_exceed_is_refused(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    last = (1 << 63) - 1
    put_as(legacy, "facade", f"UPDATE trips SET status = 'a', base_version = {last} WHERE id = {id_}")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("UPDATE trips SET status = 'b'")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("DELETE FROM trips")

    assert legacy.versions(key) == [(1, "requested"), (last, "a")]


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


def test_facts_get_their_tombstone_though_their_parent_has_a_higher_one(legacy: Legacy) -> None:
    id_, key = legacy.trip()
    legacy.sql("UPDATE trips SET status = 'b'")
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    id_, _ = legacy.trip("again", key)
    legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, 1, 'ok')", id_)
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)

    assert legacy.versions(key, "STATUS") == [(1, "ok"), (2, None)]


def test_a_fact_that_leaves_no_room_for_its_tombstone_is_refused(make: Callable[..., Legacy]) -> None:
    legacy = make(tables=TABLES.replace("attempt_no int", "attempt_no bigint"))
    with legacy.ours() as connection:
        apply(capture_steps(layout()), connection)
    id_, key = legacy.trip()
    insert = "INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, %s, 'ok')"
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql(insert, id_, (1 << 63) - 1)
    legacy.sql(insert, id_, (1 << 63) - 2)

    assert legacy.versions(key, "STATUS") == [((1 << 63) - 2, "ok")]


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


def test_row_keys_are_for_ever(legacy: Legacy) -> None:
    facts(legacy, 1)
    other, other_key = legacy.trip()
    for statement in (
        f"UPDATE trips SET id = 9999 WHERE id = {other}",
        f"UPDATE trips SET trip_uuid = gen_random_uuid() WHERE id = {other}",
        f"UPDATE attempts SET trip_id = {other}",
        f"UPDATE attempts SET trip_uuid = '{other_key}'",
        "UPDATE attempts SET attempt_no = 2",
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
