"""Rows that were deleted where the layout ignores it: Schemaless keeps their cells, and that is no difference."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from schemaless_core import Cell, Json
from schemaless_core.control.jobs.jobs import JobState
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.legacy import attempts, base, layout, notes
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

IGNORE = DeletePolicy.IGNORE
ALL = Order(older=1.0, indexes=False, decoded=0)
INDEX: Json = {
    "table": "status_index",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "status", "type": "string"}]}],
}
ROWS = """
INSERT INTO trips (driver_id, status) SELECT 1, 'requested' FROM generate_series(1, 4);
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, n, 'a' FROM trips, generate_series(1, 3) n;
UPDATE trips SET status = 'completed' WHERE id <= 2;
UPDATE notes SET text = 'b' WHERE n = 3
"""


@pytest.fixture
def company(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Carried over whole; the layout ignores deletions."""
    wanted = layout(base(IGNORE), attempts(IGNORE), notes(IGNORE))
    with migration(servers, stores, wanted=wanted, indexes=[INDEX]) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.sql(ROWS)
        made.carry()
        yield made


def key_of(company: Migration, number: int) -> UUID:
    ((key,),) = company.legacy.sql("SELECT trip_uuid::text FROM trips WHERE id = %s", number)
    return UUID(key)


def compared(company: Migration, order: Order = ALL) -> dict[str, int]:
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    counts = dict(diffing.jobs.progress(job.id).counts)
    assert len(diffing.jobs.findings(job.id)) == counts.get("open", 0) + counts.get("not_compared", 0)
    return counts


@pytest.mark.parametrize("source", ["postgres", "schemaless"])
def test_an_ignored_deletion_is_neither_open_nor_equal(company: Migration, source: str) -> None:
    """I12"""
    before = compared(company)
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; DELETE FROM trips WHERE id = 1")
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 2 AND n >= 2")  # the first one stays
    company.carry()
    target = "schemaless" if source == "postgres" else "postgres"

    found = compared(company, Order(source, target, older=1.0, indexes=False, decoded=0))

    assert found.get("open", 0) == found.get("not_compared", 0) == 0
    assert found["deletions_ignored"] == 1 + 3 + 2  # BASE and all notes of the first trip, two notes of the second
    assert found["equal"] == before["equal"] - 6
    assert found["rows"] == before["rows"]
    assert found["older_equal"] == before["older_equal"]


def test_answers_of_indexes_are_explained_alike(company: Migration) -> None:
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; DELETE FROM trips WHERE id = 1")
    company.carry()
    catch_up(company.facade.store)

    found = compared(company, Order(decoded=0))

    assert found.get("open", 0) == found.get("index_not_compared", 0) == 0
    assert found["index_deletions_ignored"] == 1

    company.legacy.sql("UPDATE tripstore.kept SET ref_key = ref_key + 1")
    assert compared(company, Order(decoded=0))["index_answers_differ"] == 1
    # Another diff samples other values; about this one each asks again.
    again = {"name": "status_index", "again": ["completed"]}
    assert {"index": again} in Diffing(company.facade).plan(Order(decoded=0)).parts


def test_whatever_else_differs_is_open(company: Migration) -> None:
    """A cell that was never carried, an extra cell without a deletion, and a row that lives again."""
    copier, foreign = company.facade.store.as_copier(), key_of(company, 3)
    company.legacy.sql("DELETE FROM notes WHERE trip_id IN (1, 2); DELETE FROM trips WHERE id IN (1, 2)")
    company.carry()
    assert compared(company)["deletions_ignored"] == 2 + 6

    latest = copier.get_cell_latest(foreign, "BASE")
    assert latest is not None
    copier.put_cells([Cell(foreign, "BASE", latest.ref_key + 1, {"status": "foreign"})])
    found = compared(company)
    assert (found["differs"], found["open"], found["deletions_ignored"]) == (1, 1, 8)


def test_a_deleted_row_whose_last_version_the_mirror_does_not_have_is_open(company: Migration) -> None:
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; UPDATE trips SET status = 'lost' WHERE id = 1")
    company.legacy.sql("DELETE FROM tripstore.queue; DELETE FROM trips WHERE id = 1")
    company.carry()

    found = compared(company)

    assert (found["extra"], found["deletions_ignored"]) == (1, 3)


def test_a_deleted_sibling_hides_no_other(company: Migration) -> None:
    """NOTES of a trip: the third row went, and of the second the mirror lacks the last version."""
    company.legacy.sql("UPDATE notes SET text = 'lost' WHERE trip_id = 1 AND n = 2")
    company.legacy.sql("DELETE FROM tripstore.queue; DELETE FROM notes WHERE trip_id = 1 AND n = 3")
    company.carry()

    found = compared(company)

    assert (found["differs"], found["deletions_ignored"]) == (1, 1)


def test_without_the_word_of_capture_nothing_is_explained(company: Migration) -> None:
    """The control: a diff that goes by the layout alone would take any extra cell for a deleted row's."""
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; DELETE FROM trips WHERE id = 1")
    company.carry()
    company.legacy.sql("DELETE FROM tripstore.kept")

    found = compared(company)

    assert (found["extra"], found.get("deletions_ignored", 0)) == (1 + 3, 0)


def facts(company: Migration, id_: int, *numbers: int) -> None:
    company.legacy.sql(
        "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) "
        "SELECT id, trip_uuid, n, 'x' FROM trips, unnest(%s::int[]) AS n WHERE id = %s",
        list(numbers),
        id_,
    )


def test_i12_a_fact_that_was_never_deleted_is_open_whatever_went_above_it(company: Migration) -> None:
    """Facts 1, 2 and 5 went with their parent, and 7 in the row's next life. The mirror has another one below these."""
    key = key_of(company, 1)
    for numbers in ((1, 2, 5), (7,)):
        facts(company, 1, *numbers)
        company.carry()
        company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; DELETE FROM trips WHERE id = 1")
        company.legacy.sql("INSERT INTO trips (id, trip_uuid, status) VALUES (1, %s, 'again')", str(key))
    company.carry()
    assert compared(company)["deletions_ignored"] == 4 + 3  # the facts, and the notes

    company.facade.store.as_copier().put_cells([Cell(key, "STATUS", 3, {"result": "foreign"})])
    found = compared(company)

    assert (found["extra"], found["open"], found["deletions_ignored"]) == (1, 1, 4 + 3)
    # The control: as it was, where the highest of them was known, and explained whatever stood below.
    company.legacy.sql("DELETE FROM tripstore.kept WHERE n < 0")
    found = compared(company)
    assert (found["extra"], found["deletions_ignored"]) == (5, 3)
    # The way out for facts that went before each was remembered: a person says so, one by one.
    company.legacy.sql(
        "INSERT INTO tripstore.kept (row_key, column_name, n, ref_key)"
        " SELECT %s, 'STATUS', -1 - n, n FROM unnest(%s) AS n",
        str(key),
        [1, 2, 5, 7],
    )
    assert (compared(company)["extra"], compared(company)["deletions_ignored"]) == (1, 4 + 3)


def test_a_recheck_closes_what_was_deleted_since(company: Migration) -> None:
    key, diffing = key_of(company, 1), Diffing(company.facade)
    company.legacy.sql("UPDATE trips SET status = 'on its way' WHERE id = 1")
    order = Order(indexes=False, decoded=0)
    job = diffing.begin(diffing.plan(order))
    diffing.runner(job, "test").run()
    assert {(each.kind, each.row_key) for each in diffing.jobs.findings(job.id)} == {("busy", key)}
    company.carry()
    company.legacy.sql("DELETE FROM notes WHERE trip_id = 1; DELETE FROM trips WHERE id = 1")

    done = diffing.rechecking(order).of_job(diffing.jobs, job)

    counts = diffing.jobs.progress(job.id).counts
    assert (done.explained, done.remaining, done.not_compared) == (1, [], 0)
    assert (counts["deletions_ignored"], counts["not_compared"]) == (1, 0)
    assert diffing.jobs.findings(job.id) == []
