"""Older versions are compared wherever both stores still can; what one has forgotten hides none of the others (I12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Cell, canonical_bytes
from schemaless_core.control.jobs.jobs import JobState
from tests.damage import spoil
from tests.facades import Migration, migration
from tests.legacy import attempts, base, layout, notes
from tests.stores import Stores
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.engines.validation.diff.differences import CellClass, Difference, NotCompared, from_finding
from tripstore.engines.validation.diff.portions import bounds_of
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

ALL = Order(older=1.0, indexes=False, decoded=0)
BACK = Order("schemaless", "postgres", older=1.0, indexes=False, decoded=0)
CHILD = 1 << 20
_PAIRS = [("postgres", "sqlite"), ("postgres18", "mariadb")]


@pytest.fixture(params=_PAIRS, ids=" ".join)
def company(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, shards=4) as made:
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def embedded(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """For what does not depend on the engine."""
    with migration(servers, stores, shards=4) as made:
        made.phase(Phase.DUALWRITE)
        yield made


def trip(company: Migration, versions: int = 6) -> UUID:
    """A trip that was changed so often; all of it is carried."""
    _id, row_key = company.legacy.trip("1")
    for number in range(2, versions + 1):
        company.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s", str(number), str(row_key))
    company.carry()
    return row_key


def forget(company: Migration, row_key: UUID, *ref_keys: int, column: str = "BASE") -> None:
    """Their log is dropped, as it is after some days."""
    company.legacy.sql(
        "DELETE FROM tripstore.log WHERE row_key = %s AND column_name = %s AND ref_key = ANY (%s)",
        str(row_key),
        column,
        list(ref_keys),
    )


def make_unreadable(company: Migration, row_key: UUID, ref_key: int) -> None:
    """Nothing can be made of what Postgres has of it."""
    company.legacy.sql(
        'UPDATE tripstore.log SET row = replace(row, \'"status"\', \'"fare":true,"status"\')'
        " WHERE row_key = %s AND column_name = 'BASE' AND ref_key = %s",
        str(row_key),
        ref_key,
    )


def spoil_version(company: Migration, row_key: UUID, ref_key: int, body: bytes) -> None:
    found = company.facade.store.get_cell(row_key, "BASE", ref_key)
    assert found is not None
    assert canonical_bytes(found.body) != body
    spoil(company.facade.store, found, body)


def compared(company: Migration, order: Order = ALL) -> tuple[dict[str, int], set[tuple[object, ...]]]:
    """What of the counts is about older versions, and what was found: class, row, column, version, path."""
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    counts = diffing.jobs.progress(job.id).counts
    found = [from_finding(each) for each in diffing.jobs.findings(job.id)]
    names = ("older_equal", "older_forgotten", "older_not_compared", "open")
    return {name: counts[name] for name in names if counts.get(name)}, {_told(each) for each in found if each}


def _told(each: Difference) -> tuple[object, ...]:
    assert each.is_older
    return each.kind, each.row_key, each.column_name, each.from_ref_key, each.to_ref_key, each.path


def test_a_gap_in_the_middle_hides_nothing_beyond_it(company: Migration) -> None:
    row_key, _whole = trip(company), trip(company, 3)
    spoil_version(company, row_key, 2, b'{"status":"wrong"}')
    control = compared(company)
    forget(company, row_key, 3, 4)
    with pytest.raises(HistoryTruncated):
        company.duo.legacy.get_history(row_key, "BASE")

    found = compared(company)

    wrong = {(CellClass.DIFFERS, row_key, "BASE", 2, 2, "status")}
    assert control == ({"older_equal": 4 + 2, "open": 1}, wrong)
    assert found == ({"older_equal": 2 + 2, "older_forgotten": 2, "open": 1}, wrong)
    assert compared(company, BACK) == found

    spoil_version(company, row_key, 2, b'{"status":"2"}')
    assert compared(company) == ({"older_equal": 3 + 2, "older_forgotten": 2}, set())


def test_many_rows_are_compared_by_few_questions_to_postgres(
    company: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 300
    company.legacy.sql("INSERT INTO trips (status) SELECT '1' FROM generate_series(1, %s)", rows)
    company.legacy.sql("UPDATE trips SET status = '2'")
    company.legacy.sql("UPDATE trips SET status = '3'")
    company.carry()
    company.legacy.sql("DELETE FROM tripstore.log WHERE ref_key = 1 AND column_name = 'BASE'")
    walk = Diffing(company.facade).walks(ALL)["older_versions"]
    questions = list[None]()
    run = LegacyDatabase.run

    def counted(*arguments: Any, **more: Any) -> object:
        questions.append(None)
        return run(*arguments, **more)

    monkeypatch.setattr(LegacyDatabase, "run", counted)
    portion = walk.step(bounds_of(range(4)), None)

    assert portion.is_end
    assert (portion.counts["older_equal"], portion.counts["older_forgotten"]) == (rows, rows)
    assert len(questions) < rows / 5


def test_a_long_history_is_compared_to_its_end(company: Migration) -> None:
    row_key, _whole = trip(company, 25), trip(company, 13)
    spoil_version(company, row_key, 2, b'{"status":"wrong"}')
    control = compared(company)
    forget(company, row_key, 20, 3)

    wrong = {(CellClass.DIFFERS, row_key, "BASE", 2, 2, "status")}
    assert control == ({"older_equal": 23 + 12, "open": 1}, wrong)
    assert compared(company) == ({"older_equal": 21 + 12, "older_forgotten": 2, "open": 1}, wrong)


def test_a_version_that_cannot_be_read_is_not_compared_and_those_beside_it_are(company: Migration) -> None:
    row_key = trip(company)
    spoil_version(company, row_key, 5, b'{"status":"wrong"}')
    spoil_version(company, row_key, 4, b"torn")
    make_unreadable(company, row_key, 3)
    forget(company, row_key, 1)

    counts, found = compared(company)

    assert counts == {"older_equal": 1, "older_forgotten": 1, "older_not_compared": 1, "open": 2}
    assert {each[:5] for each in found} == {
        (CellClass.DIFFERS, row_key, "BASE", 5, 5),
        (CellClass.DIFFERS, row_key, "BASE", 4, 4),
        (NotCompared.UNREADABLE, row_key, "BASE", 3, 3),
    }
    assert any("none of this layout's" in str(path) for *_, path in found)


def test_a_version_that_one_store_lacks_and_none_has_forgotten_is_found_beside_a_gap(embedded: Migration) -> None:
    row_key = trip(embedded)
    embedded.legacy.sql("UPDATE trips SET base_version = 9 WHERE trip_uuid = %s", str(row_key))
    ((latest,),) = embedded.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(row_key))
    embedded.carry()
    forget(embedded, row_key, 2)
    embedded.facade.store.as_copier().put_cells([Cell(row_key, "BASE", -3, {"status": "foreign"})])

    counts, found = compared(embedded)

    assert latest in (6, 7)
    assert counts == {"older_equal": latest - 2, "older_forgotten": 1, "open": 1}
    assert found == {(CellClass.EXTRA, row_key, "BASE", None, -3, "")}


def test_a_mirror_that_has_forgotten_hides_nothing_either(embedded: Migration) -> None:
    """Schemaless is the authority."""
    row_key = trip(embedded)
    spoil_version(embedded, row_key, 2, b'{"status":"wrong"}')
    forget(embedded, row_key, 3, 4)
    embedded.phase(Phase.LIVE)

    counts, found = compared(embedded, BACK)

    assert counts == {"older_equal": 2, "older_forgotten": 2, "open": 1}
    assert found == {(CellClass.DIFFERS, row_key, "BASE", 2, 2, "status")}


def test_what_is_on_its_way_is_busy_version_by_version(embedded: Migration) -> None:
    """No relay runs: what both have is compared all the same."""
    row_key = trip(embedded, 3)
    spoil_version(embedded, row_key, 2, b'{"status":"wrong"}')
    for status in ("4", "5"):
        embedded.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s", status, str(row_key))
    order = Order(older=1.0, indexes=False, decoded=0, columns=["BASE"])
    diffing = Diffing(embedded.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE

    counts = diffing.jobs.progress(job.id).counts
    assert (counts["older_equal"], counts["older_differs"], counts["older_not_compared"]) == (2, 1, 1)
    embedded.carry()
    done = diffing.rechecking(order).of_job(diffing.jobs, job)
    assert (done.solved, len(done.remaining), done.not_compared) == (2, 1, 0)  # the latest one, too
    assert diffing.jobs.progress(job.id).counts["older_not_compared"] == 0


def test_a_recheck_closes_what_is_forgotten_by_now_and_no_difference(embedded: Migration) -> None:
    """What was seen to differ is not made right by a log that is dropped (I12)."""
    row_key = trip(embedded, 4)
    spoil_version(embedded, row_key, 1, b'{"status":"wrong"}')
    make_unreadable(embedded, row_key, 2)
    spoil_version(embedded, row_key, 3, b"torn")
    order = Order(older=1.0, indexes=False, decoded=0, columns=["BASE"])
    diffing = Diffing(embedded.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    before = diffing.jobs.progress(job.id).counts
    assert (before["open"], before["older_not_compared"]) == (2, 1)
    forget(embedded, row_key, 1, 2)

    done = diffing.rechecking(order).of_job(diffing.jobs, job)

    assert (done.solved, len(done.remaining), done.not_compared) == (1, 1, 1)
    after = diffing.jobs.progress(job.id).counts
    assert (after["open"], after["older_not_compared"], after["older_forgotten"]) == (2, 0, 1)


def test_children_and_facts_are_compared_beyond_what_was_forgotten(embedded: Migration) -> None:
    id_, row_key = embedded.legacy.trip()
    embedded.legacy.sql("INSERT INTO notes (trip_id, trip_uuid, n, text) VALUES (%s, %s, 1, 'a')", id_, str(row_key))
    for number in (1, 2, 3):
        embedded.legacy.sql("UPDATE notes SET text = %s WHERE trip_id = %s", str(number), id_)
        sql = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, %s, 'x')"
        embedded.legacy.sql(sql, id_, str(row_key), number)
    embedded.carry()
    assert compared(embedded) == ({"older_equal": 3}, set())  # each fact is a row, and has no older version

    embedded.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    embedded.carry()
    whole = compared(embedded)
    forget(embedded, row_key, CHILD + 1, column="NOTES")
    forget(embedded, row_key, 2, column="STATUS")
    forget(embedded, row_key, 1)

    assert whole == ({"older_equal": 4 + 3 + 1}, set())
    assert compared(embedded) == ({"older_equal": 3 + 2, "older_forgotten": 3}, set())


def test_what_was_changed_before_capture_began_is_forgotten(embedded: Migration) -> None:
    """As if version 2 were the first that capture saw."""
    row_key = trip(embedded, 3)
    forget(embedded, row_key, 1)
    embedded.legacy.sql("UPDATE tripstore.log SET previous = 1 WHERE ref_key = 2")

    assert compared(embedded) == ({"older_equal": 1, "older_forgotten": 1}, set())


def test_versions_of_rows_whose_deletion_is_ignored_are_forgotten_with_their_log(
    servers: LocalServers, stores: Stores
) -> None:
    wanted = layout(*(each(DeletePolicy.IGNORE) for each in (base, attempts, notes)))
    with migration(servers, stores, shards=4, wanted=wanted) as made:
        made.phase(Phase.DUALWRITE)
        row_key = trip(made, 3)
        made.legacy.sql("DELETE FROM trips")
        made.carry()
        made.facade.store.as_copier().put_cells([Cell(row_key, "BASE", -3, {"status": "foreign"})])
        extra = {(CellClass.EXTRA, row_key, "BASE", None, -3, "")}
        assert compared(made) == ({"older_equal": 2, "open": 1}, extra)

        forget(made, row_key, 1, 2, 3)

        assert compared(made) == ({"older_forgotten": 3}, set())
