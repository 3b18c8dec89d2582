"""A child row that gets another number or another parent: a tombstone where it was, and a row elsewhere (I1, I2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import psycopg2
import pytest

from tests.integration.capture_versions.rows import note, put_as
from tests.legacy import Legacy, apply, layout, refused
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.layout.layout import NUMBER_MAX, VERSION_MAX, DeletePolicy, Layout
from tripstore.backends.postgres.wire.connections import rows

INSERT = "INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, %s)"


def with_notes(legacy: Legacy, *texts: str) -> tuple[int, UUID]:
    """A trip with notes from number 1 on."""
    id_, key = legacy.trip()
    for n, text in enumerate(texts, 1):
        legacy.sql(INSERT, id_, n, text)
    return id_, key


def previous(legacy: Legacy, key: UUID) -> list[int | None]:
    return [change.previous for change in legacy.changes(key, "NOTES")]


def test_another_number_is_a_tombstone_and_a_row(legacy: Legacy) -> None:
    _, key = with_notes(legacy, "a")
    legacy.sql("UPDATE notes SET text = 'b'")
    legacy.sql("UPDATE notes SET n = 2, text = 'c', note_version = 77")
    legacy.sql("UPDATE notes SET text = 'd'")
    legacy.deliver()
    legacy.sql("UPDATE notes SET n = 1")
    legacy.sql("DELETE FROM notes")

    assert legacy.versions(key, "NOTES") == [
        (note(1, 0), "a"),
        (note(1, 1), "b"),
        (note(1, 2), None),
        (note(1, 3), "d"),
        (note(1, 4), None),
        (note(2, 0), "c"),
        (note(2, 1), "d"),
        (note(2, 2), None),
    ]
    assert previous(legacy, key) == [None, note(1, 0), note(1, 1), note(1, 2), note(1, 3), None, note(2, 0), note(2, 1)]


def test_a_statement_that_renumbers_all(legacy: Legacy) -> None:
    """One row takes the number that another one leaves in the same statement."""
    _, key = with_notes(legacy, "a", "b", "c")
    legacy.sql("DELETE FROM notes WHERE n = 1")
    legacy.sql("UPDATE notes SET n = n - 1")

    assert legacy.versions(key, "NOTES") == [
        (note(1, 0), "a"),
        (note(1, 1), None),
        (note(1, 2), "b"),
        (note(2, 0), "b"),
        (note(2, 1), None),
        (note(2, 2), "c"),
        (note(3, 0), "c"),
        (note(3, 1), None),
    ]
    assert legacy.sql("SELECT n, note_version FROM notes ORDER BY n") == [(1, 2), (2, 2)]


def test_numbers_that_are_swapped_in_one_transaction(legacy: Legacy) -> None:
    _, key = with_notes(legacy, "a", "b")
    legacy.sql(
        "BEGIN; UPDATE notes SET n = 9 WHERE n = 1; UPDATE notes SET n = 1 WHERE n = 2;"
        "UPDATE notes SET n = 2 WHERE n = 9; COMMIT"
    )

    assert legacy.versions(key, "NOTES") == [
        (note(1, 0), "a"),
        (note(1, 1), None),
        (note(1, 2), "b"),
        (note(2, 0), "b"),
        (note(2, 1), None),
        (note(2, 2), "a"),
        (note(9, 0), "a"),
        (note(9, 1), None),
    ]


def test_another_parent_in_whatever_partition(legacy: Legacy) -> None:
    """The UUID is filled; a row that changes its partition is a DELETE and an INSERT to Postgres."""
    first, first_key = with_notes(legacy, "a")
    others = [legacy.trip() for _ in range(6)]
    before = first
    for id_, _ in others:
        legacy.sql("UPDATE notes SET trip_id = %s WHERE trip_id = %s", id_, before)
        before = id_

    assert legacy.versions(first_key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), None)]
    *passed, last = [legacy.versions(key, "NOTES") for _, key in others]
    assert passed == [[(note(1, 0), "a"), (note(1, 1), None)]] * 5
    assert last == [(note(1, 0), "a")]
    assert legacy.sql("SELECT trip_uuid::text FROM notes") == [(str(others[-1][1]),)]
    is_first = "SELECT satisfies_hash_partition('notes'::regclass, 2, 0, %s::bigint)"
    assert len({legacy.sql(is_first, id_)[0] for id_, _ in others}) == 2, "some of them moved"


def test_what_no_ref_key_or_row_key_holds_is_refused(legacy: Legacy) -> None:
    _, key = with_notes(legacy, "a")
    _, other_key = legacy.trip()
    wrong = {
        f"UPDATE notes SET trip_uuid = '{other_key}'": sqlstates.WRONG_PARENT,
        f"UPDATE notes SET n = 2, trip_uuid = '{other_key}'": sqlstates.WRONG_PARENT,
        "UPDATE notes SET trip_id = 4711": sqlstates.NO_PARENT,
        f"UPDATE notes SET n = {NUMBER_MAX + 1}": sqlstates.OUT_OF_RANGE,
    }
    for statement, sqlstate in wrong.items():
        with refused(sqlstate):
            legacy.sql(statement)
    for origin in ("facade", "reverse"):
        with refused(sqlstates.KEY_CHANGED):
            put_as(legacy, origin, "UPDATE notes SET n = 2, note_version = 5")
    put_as(legacy, "facade", f"UPDATE notes SET text = 'z', note_version = {VERSION_MAX}")
    with refused(sqlstates.OUT_OF_RANGE):
        legacy.sql("UPDATE notes SET n = 2")

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, VERSION_MAX), "z")]


def test_i8_a_savepoint_takes_both_back(legacy: Legacy) -> None:
    _, key = with_notes(legacy, "a")
    legacy.sql("BEGIN; SAVEPOINT s; UPDATE notes SET n = 2; ROLLBACK TO s; UPDATE notes SET text = 'b'; COMMIT")

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), "b")]
    assert legacy.sql("SELECT count(*) FROM tripstore.tomb") == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SET session_replication_role = replica; UPDATE notes SET n = 2",
        "INSERT INTO notes (trip_id, n) SELECT trip_id, n FROM notes ON CONFLICT (trip_id, n) DO UPDATE SET n = 2",
        "MERGE INTO notes USING (VALUES (1)) v (n) ON notes.n = v.n WHEN MATCHED THEN UPDATE SET n = 2",
    ],
    ids=lambda statement: statement.split()[0],
)
def test_i8_whatever_statement_changes_it(legacy: Legacy, statement: str) -> None:
    _, key = with_notes(legacy, "a")
    legacy.sql(statement)

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), None), (note(2, 0), "a")]


def test_a_number_that_a_companys_trigger_sets_alone_is_refused(legacy: Legacy) -> None:
    """No statement names it, and the condition of capture's trigger would cost each statement."""
    _, key = with_notes(legacy, "a")
    legacy.sql(
        "CREATE FUNCTION renumber() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := NEW.n + 1; RETURN NEW; END';"
        "CREATE TRIGGER renumber BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION renumber()"
    )
    with refused(sqlstates.KEY_CHANGED):
        legacy.sql("UPDATE notes SET text = 'b'")
    legacy.sql("UPDATE notes SET n = n")

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), None), (note(2, 0), "a")]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_i2_a_number_that_another_transaction_left_meanwhile_begins_above_its_tombstone(
    legacy: Legacy, level: str
) -> None:
    """Its snapshot may be older than the tombstone: then it is refused, as from any conflict."""
    _, key = with_notes(legacy, "a", "b")
    with closing(legacy.connect()) as moving:
        rows(moving, f"SET TRANSACTION ISOLATION LEVEL {level}")
        rows(moving, "SELECT 1 FROM trips")
        legacy.sql("UPDATE notes SET text = 'c' WHERE n = 2")
        legacy.sql("DELETE FROM notes WHERE n = 2")
        if level == "READ COMMITTED":
            rows(moving, "UPDATE notes SET n = 2")
            moving.commit()
        else:
            with pytest.raises(psycopg2.errors.SerializationFailure):
                rows(moving, "UPDATE notes SET n = 2 WHERE n = 1")
            moving.rollback()

    own: list[tuple[int, str | None]] = [(note(2, 0), "b"), (note(2, 1), "c"), (note(2, 2), None)]
    left: list[tuple[int, str | None]] = [(note(1, 0), "a")]
    if level == "READ COMMITTED":
        left.append((note(1, 1), None))
        own.append((note(2, 3), "a"))
    assert legacy.versions(key, "NOTES") == left + own


def with_policy(make: Callable[..., Legacy], policy: DeletePolicy) -> tuple[Legacy, Layout]:
    wanted = layout()
    notes = replace(wanted.columns["NOTES"], on_delete=policy)
    wanted = replace(wanted, columns={**wanted.columns, "NOTES": notes})
    legacy = make()
    with legacy.ours() as connection:
        apply(capture_steps(wanted), connection)
    return legacy, wanted


def test_where_deletions_are_ignored_the_old_cell_stays_and_no_number_begins_anew(make: Callable[..., Legacy]) -> None:
    legacy, _ = with_policy(make, DeletePolicy.IGNORE)
    _, key = with_notes(legacy, "a")
    legacy.sql("UPDATE notes SET text = 'b'")
    legacy.sql("UPDATE notes SET n = 2")
    legacy.sql("UPDATE notes SET n = 1")

    expected = [(note(1, 0), "a"), (note(1, 1), "b"), (note(1, 2), "b"), (note(2, 0), "b")]
    assert legacy.versions(key, "NOTES") == expected


@pytest.mark.parametrize(
    "statement",
    ["UPDATE notes SET n = 2 WHERE n = 1", "INSERT INTO notes (trip_id, n, text) SELECT id, 2, 'c' FROM trips"],
    ids=["another number", "insert"],
)
def test_i2_where_deletions_are_ignored_one_that_a_snapshot_does_not_see_is_a_conflict(
    make: Callable[..., Legacy], statement: str
) -> None:
    legacy, _ = with_policy(make, DeletePolicy.IGNORE)
    _, key = with_notes(legacy, "a", "b")
    legacy.deliver()
    with closing(legacy.connect()) as moving:
        rows(moving, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        rows(moving, "SELECT 1 FROM trips")
        legacy.sql("DELETE FROM notes WHERE n = 2")
        with pytest.raises(psycopg2.errors.SerializationFailure):
            rows(moving, statement)

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(2, 0), "b")]


def test_where_deletions_are_forbidden_it_keeps_its_key(make: Callable[..., Legacy]) -> None:
    legacy, _ = with_policy(make, DeletePolicy.FORBID)
    with_notes(legacy, "a")

    with refused(sqlstates.KEY_CHANGED):
        legacy.sql("UPDATE notes SET n = 2")


def without(*names: str) -> Callable[[list[Made]], list[Made]]:
    """Capture without some triggers."""
    return lambda made: [
        (function, None if trigger is not None and trigger.name.endswith(names) else trigger)
        for function, trigger in made
    ]


def test_i8_control_without_the_trigger_that_sees_to_it_another_number_is_refused(legacy: Legacy) -> None:
    """A table that was captured by an earlier version has none."""
    with_notes(legacy, "a")
    legacy.sql('DROP TRIGGER "~tripstore_notes_move" ON notes')

    with refused(sqlstates.KEY_CHANGED):
        legacy.sql("SET tripstore.moving = 'x'; UPDATE notes SET n = 2")


def test_i8_control_without_what_is_behind_it_the_row_is_missed(make: Callable[..., Legacy]) -> None:
    legacy = make()
    with legacy.ours() as connection:
        apply(capture_steps(layout(), saboteur=without("_notes_moved")), connection)
    _, key = with_notes(legacy, "a")
    legacy.sql("UPDATE notes SET n = 2")

    assert legacy.versions(key, "NOTES") == [(note(1, 0), "a"), (note(1, 1), None)]
