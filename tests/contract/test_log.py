"""What callers may rely on for the log of a shard, rows and checksums (I3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, InvalidRequest, MemoryStore, Position, PositionUnknown
from schemaless_core.cell.answers import Bucket
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from tests.awaiting import below
from tests.factories import make_cell, make_trip
from tests.stores import Stores
from tripstore.backends.postgres.errors import LogPurged
from tripstore.store import TripStore

SHARDS = 8


def fill(store: CellStore, cells: int) -> list[Cell]:
    made = [make_cell(column_name=f"C{n % 3}", body=make_trip(n)) for n in range(cells)]
    store.put_cells(made)
    return made


def of_one_shard(store: CellStore, cells: int) -> tuple[int, list[Cell]]:
    row_key = uuid4()
    made = [make_cell(row_key, ref_key=n, body=n) for n in range(1, cells + 1)]
    store.put_cells(made)
    return store.shard_of(row_key), made


def test_location_1000_and_ten_cells_answer_1010(fresh_store: CellStore) -> None:
    shard, cells = of_one_shard(fresh_store, 1_020)

    page = fresh_store.get_cells_for_shard(shard, 1_000, 10)

    assert page.next_location == 1_010
    assert page.head == 1_020
    assert page.cells == cells[1_000:1_010]
    assert [cell.added_id for cell in page.cells] == list(range(1_001, 1_011))


def test_added_ids_are_dense_from_one_and_times_never_fall(fresh_store: CellStore) -> None:
    cells = fill(fresh_store, 100)
    for cell in cells[:20]:
        fresh_store.put_cell(*cell.key, cell.body)  # duplicates give no id

    logged = []
    for shard in range(SHARDS):
        page = fresh_store.get_cells_for_shard(shard, 0, 1_000)
        assert [cell.added_id for cell in page.cells] == list(range(1, len(page.cells) + 1))
        times = [cell.created_at for cell in page.cells]
        assert all(time is not None for time in times)
        assert times == sorted(time for time in times if time)
        logged += page.cells
    assert sorted(cell.key for cell in logged) == sorted(cell.key for cell in cells)


def test_a_log_is_read_to_its_end_page_by_page(fresh_store: CellStore) -> None:
    shard, cells = of_one_shard(fresh_store, 25)

    seen, location = [], 0
    while True:
        page = fresh_store.get_cells_for_shard(shard, location, 10)
        if not page.cells:
            break
        seen += page.cells
        location = page.next_location

    assert seen == cells
    assert location == page.head == 25


def test_a_position_resumes_where_its_page_ended(fresh_store: CellStore) -> None:
    shard, cells = of_one_shard(fresh_store, 12)

    first = fresh_store.get_cells_for_shard(shard, 0, 5)
    second = fresh_store.get_cells_for_shard(shard, first.position, 100)

    assert isinstance(first.position, Position)
    assert first.cells + second.cells == cells


def test_a_position_that_the_log_never_had_is_refused_by_name(fresh_store: CellStore) -> None:
    """As after a restore from an older backup: the reader would pass over all that comes (I3, I7)."""
    shard, _cells = of_one_shard(fresh_store, 3)
    end = fresh_store.get_cells_for_shard(shard, 0, 5).position
    beyond = replace(end, added_id=4)

    with pytest.raises(PositionUnknown, match="log ends at 3") as refused:
        fresh_store.get_cells_for_shards({shard: beyond}, 5)

    assert (refused.value.shard, refused.value.added_id, refused.value.head) == (shard, 4, 3)
    assert fresh_store.get_cells_for_shard(shard, end, 5).cells == []


def test_a_time_means_from_the_first_cell_created_then(fresh_store: CellStore) -> None:
    shard, _cells = of_one_shard(fresh_store, 5)
    fresh_store.put_cells([])
    stored = fresh_store.get_cells_for_shard(shard, 0, 100).cells
    third = stored[2].created_at
    assert third is not None

    page = fresh_store.get_cells_for_shard(shard, third, 100)

    first = next(n for n, cell in enumerate(stored) if cell.created_at == third)
    assert page.cells == stored[first:]
    assert fresh_store.get_cells_for_shard(shard, third + timedelta(hours=1), 10).cells == []
    last_day = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))  # in UTC a year that Python does not know
    assert fresh_store.get_cells_for_shard(shard, last_day, 10).cells == []
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    if isinstance(below(fresh_store), TripStore):  # in phase off: no store knows what happened before capture began
        with pytest.raises(LogPurged):
            fresh_store.get_cells_for_shard(shard, long_ago, 100)
    else:
        assert fresh_store.get_cells_for_shard(shard, long_ago, 100).cells == stored
        first_day = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
        assert fresh_store.get_cells_for_shard(shard, first_day, 100).cells == stored


def test_a_time_after_the_last_cell_waits_for_the_next_one(fresh_store: CellStore) -> None:
    shard, cells = of_one_shard(fresh_store, 3)

    page = fresh_store.get_cells_for_shard(shard, datetime.now(UTC) + timedelta(days=1), 10)
    fresh_store.put_cell(cells[0].row_key, "LATER", 1, "new")

    assert page.next_location == 3
    assert len(fresh_store.get_cells_for_shard(shard, page.next_location, 10).cells) == 1


def test_many_shards_are_read_in_one_call_with_a_limit_each(fresh_store: CellStore) -> None:
    fill(fresh_store, 200)

    pages = fresh_store.get_cells_for_shards(dict.fromkeys(range(SHARDS), 2), 3)

    assert set(pages) == set(range(SHARDS))
    for shard, page in pages.items():
        assert page == fresh_store.get_cells_for_shard(shard, 2, 3)
        assert len(page.cells) == min(3, max(page.head - 2, 0))


def test_shards_that_did_not_move_answer_an_empty_page(fresh_store: CellStore) -> None:
    shard, _cells = of_one_shard(fresh_store, 4)

    pages = fresh_store.get_cells_for_shards({shard: 4, (shard + 1) % SHARDS: 0}, 10)

    assert [page.cells for page in pages.values()] == [[], []]
    assert pages[shard].next_location == pages[shard].head == 4


@pytest.mark.parametrize("location", [-1, True, 1.5, "1", None, datetime(2026, 1, 1), Position("another", 1, 3)])  # noqa: DTZ001  # a naive time is what is refused
def test_what_is_no_location_is_refused(store: CellStore, location: object) -> None:
    with pytest.raises(InvalidRequest):
        store.get_cells_for_shard(0, location, 10)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("shard", [-1, SHARDS, True, "0"])
def test_a_shard_that_does_not_exist_is_refused(store: CellStore, shard: int) -> None:
    with pytest.raises(InvalidRequest, match="no shard"):
        store.get_cells_for_shard(shard, 0, 10)
    with pytest.raises(InvalidRequest, match="no shard"):
        store.scan_rows(shard)
    with pytest.raises(InvalidRequest, match="no shard"):
        store.checksum(shard)


@pytest.mark.parametrize("limit", [0, -1, True, 10**9, 1.0])
def test_a_limit_that_is_no_count_is_refused(store: CellStore, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        store.get_cells_for_shard(0, 0, limit)
    with pytest.raises(InvalidRequest, match="limit"):
        store.get_history(uuid4(), "BASE", limit=limit)
    with pytest.raises(InvalidRequest, match="limit"):
        store.scan_rows(0, limit=limit)


# ---------------------------------------------------------------------------------------------- rows, checksums


def test_rows_are_walked_in_key_order_without_loss_or_repetition(fresh_store: CellStore) -> None:
    cells = fill(fresh_store, 100)
    fresh_store.put_cells([Cell(cell.row_key, cell.column_name, 2, None) for cell in cells[:10]])

    for shard in range(SHARDS):
        expected = sorted(cell.row_key for cell in cells if fresh_store.shard_of(cell.row_key) == shard)
        walked: list[UUID] = []
        after = None
        while True:
            page = fresh_store.scan_rows(shard, after, 3)
            for row in page.rows:
                assert row.cells == fresh_store.get_row(row.row_key)
            walked += [row.row_key for row in page.rows]
            after = page.after
            if after is None:
                break
        assert walked == expected


def test_a_walk_over_some_columns_leaves_out_rows_without_them(fresh_store: CellStore) -> None:
    cells = fill(fresh_store, 60)

    rows = [row for shard in range(SHARDS) for row in fresh_store.scan_rows(shard, columns=["C1"]).rows]

    assert sorted(row.row_key for row in rows) == sorted(cell.row_key for cell in cells if cell.column_name == "C1")
    assert {name for row in rows for name in row.cells} == {"C1"}


def test_checksums_equal_the_oracles_over_the_same_cells(fresh_store: CellStore) -> None:
    oracle = MemoryStore(shards=SHARDS)
    for store in (fresh_store, oracle):
        cells = [make_cell(UUID(int=n * 7919), f"Cø{n % 2}", n % 5 - 2, make_trip(n)) for n in range(150)]
        store.put_cells(cells)
        store.put_cells([make_cell(cells[3].row_key, cells[3].column_name, 2**63 - 1, None)])

    for shard in range(SHARDS):
        buckets = fresh_store.checksum(shard)
        assert buckets == oracle.checksum(shard)
        assert len(buckets) == BUCKETS_PER_SHARD
        assert fresh_store.checksum(shard, ["Cø1"]) == oracle.checksum(shard, ["Cø1"])


def test_checksums_by_child_equal_the_oracles(fresh_store: CellStore) -> None:
    """The latest of each child; a tombstone ends its own child, and in a column of facts all that is below it."""
    oracle, children = MemoryStore(shards=SHARDS), {"FACTS": 0, "NOTES": 2, "MANY": 20}
    for store in (fresh_store, oracle):
        store.put_cells(families())

    for shard in range(SHARDS):
        for columns in (None, ["FACTS"], ["NOTES", "PLAIN"], ["MANY"]):
            assert fresh_store.checksum(shard, columns, children) == oracle.checksum(shard, columns, children)
    counts = {name: total(oracle, [name], children) for name in ("FACTS", "NOTES", "MANY", "PLAIN")}
    assert counts == {"FACTS": 20 * 4 + 10 * 7, "NOTES": 30 * 4, "MANY": 30 * 2, "PLAIN": 30}
    assert total(oracle, None, children) == sum(counts.values())
    assert total(oracle, None, {}) == 4 * 30  # the highest of each column: the control


def families() -> list[Cell]:
    """Rows with children in four columns; of every third row the facts have ended at 4."""
    cells = []
    for row in range(30):
        key = UUID(int=row * 7919)
        tombstones = {4} if row % 3 else set()
        cells += [make_cell(key, "FACTS", n, None if n in tombstones else f"{row} {n}") for n in range(1, 8)]
        cells += [make_cell(key, "NOTES", n, None if n == 6 else f"{row} {n}") for n in range(-4, 11)]
        cells += [make_cell(key, "MANY", n << 20 | v, f"{n} {v}") for n in (0, 2**42 - 1) for v in range(3)]
        cells += [make_cell(key, "PLAIN", n, f"{row} {n}") for n in (1, 2)]
    return cells


def total(store: CellStore, columns: list[str] | None, children: dict[str, int]) -> int:
    return sum(bucket.count for shard in range(SHARDS) for bucket in store.checksum(shard, columns, children))


def test_a_checksum_tells_one_changed_body(fresh_store: CellStore) -> None:
    shard, cells = of_one_shard(fresh_store, 3)
    before = fresh_store.checksum(shard)

    fresh_store.put_cell(cells[0].row_key, "BASE", 4, "another latest")

    after = fresh_store.checksum(shard)
    assert [bucket.count for bucket in before] == [bucket.count for bucket in after]
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_checksums_are_the_same_wherever_they_are_computed(stores: Stores) -> None:
    """MySQL 9.6 and later has md5() in a component only: without it the client computes."""
    stores.clusters("mysql")
    store = stores.fresh("mysql")
    fill(store, 100)
    store.put_cells(families())
    here = all_sums(store)
    for cluster in stores.clusters("mysql"):
        cluster.primary.query("INSTALL COMPONENT 'file://component_classic_hashing'")

    try:
        there = all_sums(store)
    finally:
        for cluster in stores.clusters("mysql"):
            cluster.primary.query("UNINSTALL COMPONENT 'file://component_classic_hashing'")

    assert here == there
    assert sum(bucket.count for of_shard in there for bucket in of_shard) == 34 + 220 + 100 + 20 * 4 + 10 * 7 + 30 * 7


def all_sums(store: CellStore) -> list[list[Bucket]]:
    """Of one column, of all, and of the children of each."""
    children = {"FACTS": 0, "NOTES": 2, "MANY": 20}
    return [
        store.checksum(shard, ["C0"]) + store.checksum(shard) + store.checksum(shard, children=children)
        for shard in range(SHARDS)
    ]
