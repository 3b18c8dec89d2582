"""Deletions that are ignored or forbidden, truncations, and looked-up pairs that are gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from tests.integration.capture_versions.rows import facts, note
from tests.legacy import (
    Legacy,
    attempts,
    base,
    layout,
    notes,
    refused,
)
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.backends.postgres.wire.connections import rows


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


def test_i12_a_fact_that_has_a_tombstone_is_not_remembered_as_ignored(make: Callable[..., Legacy]) -> None:
    """Else a diff would take a cell that the mirror has too many for one whose deletion is ignored."""
    legacy = make()
    legacy.install(layout(base(), attempts(DeletePolicy.TOMBSTONE), notes()))
    _, key = facts(legacy, 1, 2)
    legacy.sql("DELETE FROM trips")

    assert legacy.sql("SELECT n FROM tripstore.kept WHERE column_name = 'STATUS'") == []
    assert [n for n, result in legacy.versions(key, "STATUS") if result is None] == [3]


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


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_no_table_is_truncated_by_a_snapshot_that_may_lack_its_rows(legacy: Legacy, isolation: str) -> None:
    legacy.install(layout(), may_truncate=True)
    _id, row_key = legacy.trip("1")
    with closing(legacy.connect(isolation=isolation)) as old:
        rows(old, "SELECT count(*) FROM users")
        legacy.sql("UPDATE trips SET status = '2'")
        with refused(sqlstates.TRUNCATE_REFUSED):
            rows(old, "TRUNCATE trips CASCADE")

    legacy.sql("TRUNCATE trips CASCADE")
    legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, '3')", str(row_key))
    assert legacy.versions(row_key) == [(1, "1"), (2, "2"), (3, "3")]
