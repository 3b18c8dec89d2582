"""Child rows that came before their parent, and what is put beside them."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.integration.prepared_puts.ways import CHILD
from tests.legacy_backends import Company, status
from tripstore.backends.postgres.cells.put.row_statements import RowStatements
from tripstore.backends.postgres.errors import LegacyUnavailable


def early_note(trips: Company) -> UUID:
    """A row whose first note was put, at its third version, before a service inserted the row itself."""
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", CHILD + 3, {"text": "early"})
    trips.legacy.trip(row_key=row_key)
    # What a put leaves there keeps the row out, too.
    trips.legacy.sql("DELETE FROM tripstore.kept WHERE row_key = %s", str(row_key))
    return row_key


def test_a_note_is_not_inserted_below_a_cell_that_came_before_its_parent(trips: Company) -> None:
    """I2: a mirror has the cell with the highest ref key for the latest, and so has the table."""
    row_key = early_note(trips)

    trips.store.put_cell(row_key, "NOTES", CHILD, {"text": "first"})

    latest = trips.store.get_cell_latest(row_key, "NOTES")
    assert latest is not None
    assert (latest.ref_key, latest.body) == (CHILD + 3, {"text": "early"})
    assert trips.versions(row_key, "NOTES") == [CHILD + 3, CHILD]
    assert trips.legacy.sql("SELECT note_version FROM notes WHERE trip_uuid = %s", str(row_key)) in ([], [(3,)])


def test_control_a_put_that_looks_at_the_very_ref_key_alone_never_comes_to_an_end(
    trips: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture refuses the row, as it does one whose deletion came in between; and it would be inserted again."""
    monkeypatch.setattr(RowStatements, "_is_from_here_on", lambda _self, place: f"c.ref_key = {place.ref_key}")
    row_key = early_note(trips)

    with pytest.raises(LegacyUnavailable):
        trips.store.using(deadline=0.3).put_cell(row_key, "NOTES", CHILD, {"text": "first"})


def test_cells_of_other_notes_do_not_keep_one_out_of_its_table(trips: Company, ways_used: list[str]) -> None:
    row_key = uuid4()
    for number in (1, 3):
        trips.store.put_cell(row_key, "NOTES", number * CHILD + 5, {"text": "early"})
    trips.legacy.trip(row_key=row_key)
    ways_used.clear()

    trips.store.put_cell(row_key, "NOTES", 2 * CHILD, {"text": "between"})

    assert ways_used == ["insert_first"]
    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s", str(row_key)) == [(2, 0)]


def test_all_that_waited_for_its_parent_is_adopted(trips: Company, ways_used: list[str]) -> None:
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", CHILD + 5, {"text": "early"})
    trips.store.put_cell(row_key, "STATUS", 4, {"result": "early"})
    ways_used.clear()

    trips.store.put_cell(row_key, "BASE", 1, status("late"))

    assert ways_used == ["insert_first", "insert", "insert"]
    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s", str(row_key)) == [(1, 5)]
    assert trips.legacy.sql("SELECT attempt_no FROM attempts WHERE trip_uuid = %s", str(row_key)) == [(4,)]
