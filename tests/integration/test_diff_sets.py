"""Older versions are compared as sets, page by page, and what differs is left for a closer look (I12)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pytest

from schemaless_core import ColumnKey, canonical_bytes
from schemaless_core.cell import page_bytes
from schemaless_core.errors import InvalidRequest
from tests.damage import lose
from tests.facades import Migration, migration
from tests.integration.test_diff_older import (
    ALL,
    BACK,
    CHILD,
    company,
    compared,
    embedded,
    forget,
    make_unreadable,
    spoil_version,
    trip,
)
from tests.legacy import attempts, base, layout, notes
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.engines.validation.diff import older
from tripstore.engines.validation.diff.differences import CellClass
from tripstore.engines.validation.diff.version_sets import RowPlace
from tripstore.local.servers import LocalServers
from tripstore.migration.diff import version_sets
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.version_sets import StoredSets
from tripstore.phase import Phase

__all__ = ["company", "embedded"]  # fixtures
SHARDS = 4


class Sets(NamedTuple):
    """What came of all looks."""

    left: list[ColumnKey]
    equal: int
    forgotten: int


def as_sets(company: Migration, share: float = 1.0, columns: list[str] | None = None) -> Sets:
    store, legacy = company.facade.store.as_copier(), company.duo.legacy
    sets = StoredSets(legacy.sums, store, legacy.layout, 20.0, share, columns)
    found = list(sets.compared(RowPlace(0), SHARDS))
    left = sorted(key for each in found for key in each.left)
    return Sets(left, sum(each.equal for each in found), sum(each.forgotten for each in found))


def lose_version(company: Migration, row_key: UUID, ref_key: int) -> None:
    found = company.facade.store.get_cell(row_key, "BASE", ref_key)
    assert found is not None
    lose(company.facade.store, found)


def test_what_is_plain_is_compared_as_sets_and_all_else_is_left_for_a_closer_look(company: Migration) -> None:
    rows = [trip(company) for _ in range(5)]
    _whole, forgotten, spoiled, unreadable, lacking = rows
    forget(company, forgotten, 2, 3)
    spoil_version(company, spoiled, 2, b'{"status":"wrong"}')
    make_unreadable(company, unreadable, 3)
    lose_version(company, lacking, 4)

    left = sorted(ColumnKey(row_key, "BASE") for row_key in (spoiled, unreadable, lacking))
    assert as_sets(company) == Sets(left, 5 + 3, 2)
    counts, found = compared(company)
    assert counts == {"older_equal": 5 + 3 + 4 + 4 + 4, "older_forgotten": 2, "older_not_compared": 1, "open": 2}
    assert {each[:5] for each in found} >= {
        (CellClass.DIFFERS, spoiled, "BASE", 2, 2),
        (CellClass.MISSING, lacking, "BASE", 4, None),
    }
    back = {each[:5] for each in compared(company, BACK)[1]}
    assert (CellClass.EXTRA, lacking, "BASE", None, 4) in back


def test_control_sets_that_are_compared_by_their_number_alone_hide_what_differs(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = trip(embedded)
    spoil_version(embedded, row_key, 2, b'{"status":"wrong"}')
    wrong = {(CellClass.DIFFERS, row_key, "BASE", 2, 2, "status")}
    assert compared(embedded) == ({"older_equal": 4, "open": 1}, wrong)

    monkeypatch.setattr(version_sets, "settled", lambda stored, *_, **_more: (len(stored) - 1, 0))

    assert compared(embedded) == ({"older_equal": 5}, set())


def deleted_trip(company: Migration) -> UUID:
    """With a note of two versions and three attempts, all gone."""
    id_, row_key = company.legacy.trip()
    company.legacy.sql("INSERT INTO notes (trip_id, trip_uuid, n, text) VALUES (%s, %s, 1, 'a')", id_, str(row_key))
    company.legacy.sql("UPDATE notes SET text = 'b' WHERE trip_id = %s", id_)
    for number in (1, 2, 3):
        sql = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, %s, 'x')"
        company.legacy.sql(sql, id_, str(row_key), number)
    company.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    company.carry()
    return row_key


def test_rows_that_were_deleted_are_compared_as_sets_to_their_tombstones(company: Migration) -> None:
    row_key = deleted_trip(company)
    assert as_sets(company) == Sets([], 1 + 2 + 3, 0)

    came_back = deleted_trip(company)
    company.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'again')", str(came_back))
    company.carry()
    assert as_sets(company) == Sets([], 6 + 1 + 6, 0)  # its tombstone is an older version now

    forget(company, row_key, 1)
    forget(company, row_key, CHILD, CHILD + 1, column="NOTES")
    assert as_sets(company) == Sets([], 6 + 1 + 6 - 3, 3)
    forget(company, row_key, 2, column="STATUS")  # whether a fact was there only its parent's history says
    assert as_sets(company) == Sets([], 6 + 1 + 6 - 4, 4)
    assert as_sets(company, columns=["STATUS"]) == Sets([ColumnKey(row_key, "STATUS")], 3, 0)
    forget(company, came_back, 2, column="STATUS")  # its parent's history is whole: it never was
    assert as_sets(company).left == [ColumnKey(came_back, "STATUS")]
    extra = {(CellClass.EXTRA, came_back, "STATUS", None, 2, "")}
    assert compared(company) == ({"older_equal": 6 + 1 + 6 - 5, "older_forgotten": 4, "open": 1}, extra)
    forget(company, came_back, 1)
    assert compared(company) == ({"older_equal": 6 + 1 + 6 - 6, "older_forgotten": 6}, set())


def test_rows_whose_deletion_is_ignored_are_compared_as_sets_with_and_without_their_log(
    servers: LocalServers, stores: Stores
) -> None:
    wanted = layout(*(each(DeletePolicy.IGNORE) for each in (base, attempts, notes)))
    with migration(servers, stores, shards=SHARDS, wanted=wanted) as made:
        made.phase(Phase.DUALWRITE)
        row_key, came_back = trip(made, 4), deleted_trip(made)
        made.legacy.sql("DELETE FROM trips")
        made.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'again')", str(came_back))
        made.carry()
        assert as_sets(made) == Sets([], 3 + 1 + 1, 0)

        made.legacy.sql("DELETE FROM tripstore.log WHERE row_key = %s", str(row_key))
        forget(made, came_back, CHILD, column="NOTES")
        assert as_sets(made) == Sets([], 1, 3 + 1)
        spoil_version(made, row_key, 2, b"torn")
        assert as_sets(made).left == [ColumnKey(row_key, "BASE")]
        assert compared(made)[0] == {"older_equal": 1, "older_forgotten": 3 - 1 + 1, "open": 1}


def test_a_fact_that_was_spoiled_below_its_tombstone_is_found(embedded: Migration) -> None:
    row_key = deleted_trip(embedded)
    fact = embedded.facade.store.get_cell(row_key, "STATUS", 2)
    assert fact is not None
    lose(embedded.facade.store, fact)

    assert as_sets(embedded).left == [ColumnKey(row_key, "STATUS")]
    assert compared(embedded)[1] == {(CellClass.MISSING, row_key, "STATUS", 2, None, "")}


def test_versions_that_were_put_late_and_free_columns_are_compared_as_sets(company: Migration) -> None:
    row_key = trip(company, 1)
    company.store.put_cell(row_key, "BASE", 9, {"status": "9"})
    company.store.put_cell(row_key, "BASE", 5, {"status": "late"})
    for ref_key in (1, 2, 3):
        company.store.put_cell(row_key, "FREE", ref_key, {"n": ref_key})
    company.carry()
    assert as_sets(company) == Sets([], 2 + 2, 0)

    company.legacy.sql("UPDATE tripstore.cell SET body = '{\"n\":0}' WHERE column_name = 'FREE' AND ref_key = 2")
    company.legacy.sql("UPDATE tripstore.cell SET body = '{\"n\":0}' WHERE column_name = 'BASE'")
    forget(company, row_key, 5)

    assert as_sets(company) == Sets([ColumnKey(row_key, "BASE"), ColumnKey(row_key, "FREE")], 0, 0)
    assert {each[:5] for each in compared(company)[1]} == {
        (CellClass.DIFFERS, row_key, "BASE", 5, 5),
        (CellClass.DIFFERS, row_key, "FREE", 2, 2),
    }


def test_what_another_layout_wrote_is_read_by_that_layout(company: Migration) -> None:
    """As after a field got another name: cells of before keep it, and so does what Postgres makes of them."""
    row_key, other = trip(company, 4), trip(company, 4)
    fields = tuple(replace(each, name="state") if each.name == "status" else each for each in base().fields)
    former = layout(replace(base(), fields=fields), attempts(), notes())
    former = replace(former, datastore=company.duo.legacy.layout.datastore)
    document = canonical_bytes(former.to_document()).decode()
    sql = "INSERT INTO tripstore.layout (digest, document) VALUES (%s, %s) RETURNING number"
    ((number,),) = company.legacy.sql(sql, former.digest, document)
    company.legacy.sql("UPDATE tripstore.log SET layout = %s WHERE column_name = 'BASE' AND ref_key < 3", number)

    assert as_sets(company) == Sets(sorted([ColumnKey(row_key, "BASE"), ColumnKey(other, "BASE")]), 0, 0)
    for ref_key in (1, 2):
        spoil_version(company, row_key, ref_key, b'{"state":"%d"}' % ref_key)

    assert as_sets(company) == Sets([ColumnKey(other, "BASE")], 3, 0)
    assert {each[4] for each in compared(company)[1]} == {1, 2}


def test_texts_of_all_kinds_are_read_from_what_capture_keeps(company: Migration) -> None:
    texts = ["", " ", "\\N", "\\", 'a"b', "a\\nb", "a\nb", "tab\t", "\r\b\f\v", "\x01\x7f", "ü€\U0001f600", "{}", None]
    row_key = trip(company, 1)
    for each in texts:
        company.legacy.sql("UPDATE trips SET status = %s, memo = memo WHERE trip_uuid = %s", each, str(row_key))
    company.legacy.sql("UPDATE trips SET status = 'end' WHERE trip_uuid = %s", str(row_key))
    company.carry()

    assert as_sets(company) == Sets([], len(texts) + 1, 0)


def test_pages_and_steps_are_of_any_size_and_count_the_same(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is larger than a page is looked at closely."""
    rows = [trip(embedded, versions) for versions in (2, 3, 12, 2, 3, 2, 2)]
    deleted_trip(embedded)
    forget(embedded, rows[1], 1)
    spoil_version(embedded, rows[2], 2, b'{"status":"wrong"}')
    whole, order = compared(embedded), Order(older=1.0, indexes=False, decoded=0, columns=["BASE"])
    assert whole[0] == {"older_equal": 1 + 1 + 10 + 1 + 2 + 1 + 1 + 6, "older_forgotten": 1, "open": 1}
    monkeypatch.setattr(version_sets, "CELLS_PER_PAGE", 10)
    monkeypatch.setattr(version_sets, "CELLS_PER_LOOK", 1)
    monkeypatch.setattr(older, "COLUMNS_PER_STEP", 1)

    assert compared(embedded) == whole
    walk, checkpoint, steps, columns = Diffing(embedded.facade).walks(order)["older_versions"], None, 0, 0
    is_end = False
    while not is_end:
        portion = walk.step([0, SHARDS], checkpoint)
        checkpoint, is_end, steps = portion.checkpoint, portion.is_end, steps + 1
        columns += portion.counts["older_columns"]
    assert columns == len(rows) + 1
    assert steps > 1


def test_what_an_earlier_version_began_is_refused(embedded: Migration) -> None:
    walk = Diffing(embedded.facade).walks(ALL)["older_versions"]
    with pytest.raises(InvalidRequest, match="earlier version"):
        walk.step([0, SHARDS], [0, 5])


def test_a_share_of_the_rows_and_some_columns_are_compared(embedded: Migration) -> None:
    for _ in range(40):
        trip(embedded, 2)
    deleted_trip(embedded)

    assert as_sets(embedded) == Sets([], 40 + 6, 0)
    assert 5 < as_sets(embedded, share=0.5, columns=["BASE"]).equal < 36
    assert as_sets(embedded, columns=["NOTES", "NONE"]) == Sets([], 2, 0)


def test_more_than_memory_is_for_is_left_for_a_look_at_a_few(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = trip(embedded)
    embedded.legacy.sql("UPDATE tripstore.log SET row = rpad(row, 1000) WHERE row_key = %s", str(row_key))
    monkeypatch.setattr(page_bytes, "PAGE_BYTES", 1000)

    assert as_sets(embedded) == Sets([ColumnKey(row_key, "BASE")], 0, 0)
