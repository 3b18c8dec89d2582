"""Rows that move to another partition."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.integration.capture_versions.rows import note, put_as
from tests.legacy import (
    MOVING_TABLE,
    TABLES,
    Legacy,
    apply,
    layout,
    moving_layout,
)
from tripstore.backends.postgres.capture import capture_steps


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
