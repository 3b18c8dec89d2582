"""What the notes of backfills and diffs amount to (I12): a part hides nothing whole, and nothing open is hidden."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemaless_core import Json
from tripstore.migration.cutover.job_facts import job_facts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def note(hour: float, ended: float | None = None, **more: Any) -> dict[str, Json]:
    """Of a whole job that began so many hours after noon, took half an hour, and left nothing."""
    end = hour + 0.5 if ended is None else ended
    body: dict[str, Json] = {
        "job": f"backfill-{hour}",
        "begun_at": at(hour).isoformat(),
        "ended_at": at(end).isoformat(),
        "is_complete": True,
        "is_partial": False,
        "rows": 100,
        "open": 0,
        "not_compared": 0,
    }
    return body | more


def at(hour: float) -> datetime:
    return NOON + timedelta(hours=hour)


def test_without_a_note_there_is_nothing() -> None:
    assert job_facts([]) is None


def test_the_newest_whole_job_counts_whatever_order_the_notes_are_in() -> None:
    found = job_facts([note(2), note(1), note(3, rows=7)])

    assert found is not None
    assert (found.begun_at, found.ended_at, found.rows) == (at(3), at(3.5), 7)


def test_younger_jobs_of_a_part_do_not_hide_it() -> None:
    found = job_facts([note(1), *(note(hour, is_partial=True) for hour in range(2, 40))])

    assert found is not None
    assert (found.begun_at, found.is_complete, found.is_partial) == (at(1), True, False)


def test_nor_does_one_that_was_never_finished() -> None:
    found = job_facts([note(1), note(2, is_complete=False, ended_at=None)])

    assert found is not None
    assert (found.begun_at, found.is_complete) == (at(1), True)


def test_while_none_is_whole_the_newest_of_all_says_how_far_it_is() -> None:
    found = job_facts([note(1, is_partial=True), note(2, is_complete=False, ended_at=None, rows=3)])

    assert found is not None
    assert (found.is_complete, found.rows) == (False, 3)


def test_what_a_closer_job_could_not_compare_counts_until_one_as_close_could() -> None:
    """I12: a plain diff says nothing of older versions that one before it could not read."""
    older = {"older": 1.0, "decoded": 0, "indexes": 0}
    closer = note(1, not_compared=3, scope=older)

    held = job_facts([closer, note(2)])
    redone = job_facts([closer, note(2, scope=older)])

    assert held is not None
    assert redone is not None
    assert (held.begun_at, held.not_compared) == (at(2), 3)
    assert (redone.begun_at, redone.not_compared) == (at(2), 0)


def test_what_any_job_left_open_counts() -> None:
    open_ones = [note(0.9, open=1), note(2, is_partial=True, open=2), note(3, is_complete=False, ended_at=None, open=4)]

    found = job_facts([note(1), *open_ones])

    assert found is not None
    assert found.open == 7


def test_but_not_what_a_later_whole_job_has_seen_to() -> None:
    """It read the same rows, and found for itself what is still wrong."""
    found = job_facts([note(0, open=5), note(1, is_partial=True, open=6), note(2, open=1)])

    assert found is not None
    assert found.open == 1


def test_what_a_part_did_not_compare_takes_nothing_from_the_whole() -> None:
    found = job_facts([note(1), note(2, is_partial=True, not_compared=9)])

    assert found is not None
    assert found.not_compared == 0


def test_notes_of_before_there_were_jobs_are_read() -> None:
    body: dict[str, Json] = {"begun_at": NOON.isoformat(), "is_complete": True, "rows": 5, "open": 0, "not_compared": 2}

    found = job_facts([body])

    assert found is not None
    assert (found.rows, found.not_compared, found.ended_at, found.capture_since) == (5, 2, None, None)


@pytest.mark.parametrize("closer", [{"older": 1.0}, {"decoded": 200}, {"indexes": 1}])
def test_nor_what_a_weaker_look_cannot_have_seen(closer: dict[str, Json]) -> None:
    """A diff of older versions found a damaged one; one without them says that all is equal."""
    weak: dict[str, Json] = {"older": 0.0, "decoded": 0, "indexes": 0}
    strong = weak | closer

    found = job_facts([note(0, open=1, scope=strong), note(1, scope=weak)])
    redone = job_facts([note(0, open=1, scope=strong), note(1, scope=weak), note(2, scope=strong)])

    assert found is not None
    assert redone is not None
    assert (found.open, redone.open) == (1, 0)


@pytest.mark.parametrize(
    ("at_hour", "running", "is_left"),
    [(0.6, [], False), (0.5, [], True), (0.4, [], True), (0.6, ["backfill-0"], True), (0.6, ["backfill-9"], False)],
)
def test_i12_what_one_found_counts_until_another_that_knew_of_it_looked_again(
    at_hour: float, running: list[Json], *, is_left: bool
) -> None:
    """The first ended half an hour after noon. Samples look elsewhere: to have begun later is not enough."""
    looked_back: Json = {"at": at(at_hour).isoformat(), "running": running}

    found = job_facts([note(0, open=1), note(1, looked_back=looked_back)])

    assert found is not None
    assert [each.job for each in found.left] == (["backfill-0"] if is_left else [])
