"""Child rows with another number or parent, carried to Schemaless and, the other way, back (I1, I5)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from schemaless_core import Cell, CellKey
from tests.facades import Migration, migration
from tests.integration.capture_versions.rows import note
from tests.mirrors import different, missing, rows_of
from tests.stores import ServerEngine, Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

INSERT = "INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, %s)"


@pytest.fixture
def moving(servers: LocalServers, stores: Stores, server_engine: ServerEngine) -> Iterator[Migration]:
    with migration(servers, stores, engine=server_engine) as made:
        made.phase(Phase.DUALWRITE)
        yield made


def with_notes(moving: Migration) -> tuple[UUID, UUID]:
    """Two trips; two notes of the first are renumbered, and one goes to the second and gets another text."""
    (first, first_key), (second, second_key) = moving.legacy.trip(), moving.legacy.trip()
    for n, text in enumerate("abc", 1):
        moving.legacy.sql(INSERT, first, n, text)
    moving.carry()
    moving.legacy.sql("DELETE FROM notes WHERE n = 1")
    moving.legacy.sql("UPDATE notes SET n = n - 1")
    moving.legacy.sql("UPDATE notes SET trip_id = %s, n = 7, text = 'moved' WHERE n = 2", second)
    moving.carry()
    return first_key, second_key


def differing(moving: Migration) -> int:
    diffing = Diffing(moving.facade)
    job = diffing.begin(diffing.plan(Order(indexes=False)))
    diffing.runner(job, "test").run()
    counts = diffing.jobs.progress(job.id).counts
    assert counts["rows"]
    return sum(counts.get(kind, 0) for kind in ("missing", "extra", "differs"))


def test_i1_the_mirror_has_both_rows_as_postgres_has_them(moving: Migration) -> None:
    first, second = with_notes(moving)

    assert missing(moving) == []
    assert differing(moving) == 0
    found = moving.facade.store.get_cells([CellKey(first, "NOTES", note(n, v)) for n, v in ((1, 2), (2, 1), (2, 2))])
    assert [None if cell is None else cell.body for cell in found] == [{"text": "b"}, None, {"text": "c"}]
    assert moving.facade.store.get_cell_latest(second, "NOTES") == Cell(second, "NOTES", note(7, 0), {"text": "moved"})
    tombstone = moving.facade.store.get_cell(first, "NOTES", note(2, 3))
    assert tombstone is not None
    assert tombstone.is_tombstone


def test_i1_control_of_a_change_that_was_lost_the_diff_says_so(moving: Migration) -> None:
    with_notes(moving)
    moving.legacy.sql("UPDATE notes SET n = 9 WHERE n = 7; DELETE FROM tripstore.queue")

    assert differing(moving) == 2  # the tombstone, and the row


def test_i5_on_live_a_tombstone_and_a_cell_are_another_number_of_the_row(moving: Migration) -> None:
    first, second = with_notes(moving)
    moving.phase(Phase.LIVE)
    moving.store.put_cell(first, "NOTES", note(1, 3), None)
    moving.store.put_cell(first, "NOTES", note(2, 4), {"text": "b"})
    moving.carry()

    assert rows_of(moving, first, "notes") == [("b", 2)]
    assert rows_of(moving, second, "notes") == [("moved", 7)]
    assert different(moving) == []

    moving.phase(Phase.SHADOW)
    moving.legacy.sql("UPDATE notes SET n = 1 WHERE n = 2")
    moving.carry()

    assert missing(moving) == []
    assert differing(moving) == 0
    assert moving.store.get_cell(first, "NOTES", note(2, 5)) == Cell(first, "NOTES", note(2, 5), None)
    assert moving.store.get_cell(first, "NOTES", note(1, 4)) == Cell(first, "NOTES", note(1, 4), {"text": "b"})
