"""Cells of many rows by few commits: what single puts leave behind, or left alone (I2, I4, I9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey
from tests.chaos.actors import wait_until
from tests.legacy import FLAVOURS
from tests.legacy_backends import Company, company, status
from tests.legacy_databases import PATIENT, postgres_server
from tests.shut_gates import CELLS, CHILD, GOING, MEDDLERS, logged, mirrored_row, queued, triggered
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.gate import BARRIER, DOOR, lock_class
from tripstore.backends.postgres.cells.put.joint_puts import CELLS_MAX
from tripstore.backends.postgres.cells.put.row_writes import RowWrites
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

#: What takes more than one statement a cell.
NOT_SIMPLE = {
    "a new row, later",
    "history",
    "a deleted child",
    "a deleted child, never there",
    "a row that goes",
    "children before their parent",
}
K = lock_class("trips")


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        made.store.put_cell(GOING, "BASE", 1, status(1))
        yield made


@pytest.fixture
def row(trips: Company) -> UUID:
    return mirrored_row(trips)


def new_rows(count: int) -> list[Cell]:
    return [Cell(uuid4(), "BASE", 1, status(n)) for n in range(count)]


def left(company: Company, cells: Sequence[Cell]) -> list[Any]:
    """What stands under the cells' keys, and what was captured of them."""
    found = company.store.get_cells([cell.key for cell in cells])
    histories = [
        [(each.ref_key, each.body) for each in company.store.get_history(cell.row_key, cell.column_name)]
        for cell in cells
    ]
    changes = [
        (change.column, change.ref_key, change.previous, change.origin, change.row is None)
        for key in dict.fromkeys(cell.row_key for cell in cells)
        for change in company.legacy.changes(key)
    ]
    return [[cell is not None and (cell.column_name, cell.ref_key, cell.body) for cell in found], histories, changes]


def assert_stored(stored: set[CellKey], others: Sequence[Cell]) -> None:
    """All of these but one or two that were tried last with one that is not simple."""
    assert stored <= keys_of(others)
    assert len(stored) >= len(others) - 2


def keys_of(cells: Sequence[Cell]) -> set[CellKey]:
    return {CellKey(*cell.key) for cell in cells}


@pytest.mark.parametrize("what", CELLS)
def test_i4_cells_put_jointly_leave_what_single_puts_leave_and_capture_logs_nothing(
    trips: Company, row: UUID, what: str
) -> None:
    cells, likes, others = CELLS[what](row), CELLS[what](mirrored_row(trips)), new_rows(8)
    before, queue, mirror = left(trips, cells), queued(trips.legacy), trips.store.as_mirror()

    stored = mirror.put_jointly([*others[:4], *cells, *others[4:]])

    if what in NOT_SIMPLE:
        assert_stored(stored, others)
        assert left(trips, cells) == before
        return
    assert stored == keys_of([*others, *cells])
    for like in likes:
        mirror.put_cell(like.row_key, like.column_name, like.ref_key, like.body)
    assert trips.store.get_cells([cell.key for cell in cells]) == cells
    assert left(trips, cells) == left(trips, likes)
    assert logged(trips.legacy, cells) == sorted((cell.column_name, cell.ref_key) for cell in cells)
    assert queued(trips.legacy) == queue
    assert mirror.put_jointly([*cells, *others]) == set(), "they are there"


def test_parents_children_facts_and_free_columns_go_together(trips: Company, row: UUID) -> None:
    new = uuid4()
    cells = [
        Cell(new, "BASE", 1, status("new")),
        Cell(new, "NOTES", CHILD, {"text": "of a new row"}),
        Cell(row, "BASE", 3, status(3)),
        Cell(new, "STATUS", 1, {"result": "1"}),
        Cell(new, "BASE", 2, status("newer")),
        Cell(row, "FREE", 99, {"x": 1}),
        Cell(row, "FREE", 100, None),
        Cell(row, "BASE", 4, status(4)),
        Cell(new, "NOTES", CHILD + 1, {"text": "changed"}),
    ]
    assert trips.store.as_mirror().put_jointly(cells) == keys_of(cells)

    assert trips.store.get_cells([cell.key for cell in cells]) == cells
    assert trips.legacy.sql("SELECT status, base_version FROM trips WHERE trip_uuid = %s", str(new)) == [("newer", 2)]
    commits = trips.legacy.sql("SELECT DISTINCT xmin::text FROM tripstore.log WHERE row_key = %s", str(new))
    assert len(commits) == 1


ODD: dict[str, Callable[[UUID], Cell]] = {
    "a value that no column takes": lambda _row: Cell(uuid4(), "BASE", 1, {"status": "x", "driver_uuid": "no uuid"}),
    "a body that is none": lambda _row: Cell(uuid4(), "BASE", 1, "no object"),
    "another body under the key": lambda row: Cell(row, "BASE", 2, status("other")),
    "a child without a parent": lambda _row: Cell(uuid4(), "NOTES", CHILD, {"text": "early"}),
    "a legacy id": lambda row: Cell(row, LEGACY_ID, 0, {"id": 7}),
    "a tombstone": lambda row: Cell(row, "BASE", 3, None),
    "a free cell that is there": lambda row: Cell(row, "FREE", 1, {"x": 1}),
}


@pytest.mark.parametrize("what", ODD)
def test_one_that_is_not_simple_is_left_and_holds_up_only_its_row(trips: Company, row: UUID, what: str) -> None:
    mirror = trips.store.as_mirror()
    mirror.put_cell(row, "FREE", 1, {"x": 1})
    odd, others = ODD[what](row), new_rows(7)
    later = Cell(odd.row_key, "OTHER", 1, ["later"])
    before = left(trips, [odd, later])

    stored = mirror.put_jointly([*others[:3], odd, *others[3:5], later, *others[5:]])

    assert_stored(stored, others)
    assert left(trips, [odd, later]) == before


@pytest.mark.parametrize("how", MEDDLERS)
@pytest.mark.parametrize("ref_key", [3, 1])
def test_i2_a_row_that_a_trigger_changes_is_left_as_it_was(trips: Company, row: UUID, how: str, ref_key: int) -> None:
    cell, others = Cell(row if ref_key == 3 else uuid4(), "BASE", ref_key, status("theirs")), new_rows(4)
    before = left(trips, [cell])
    when, body = MEDDLERS[how]
    with triggered(trips.legacy, when, f"IF NEW.status <> 'theirs' THEN RETURN NEW; END IF; {body}"):
        assert_stored(trips.store.as_mirror().put_jointly([*others[:2], cell, *others[2:]]), others)

    assert left(trips, [cell]) == before


def test_control_without_a_look_afterwards_what_a_trigger_made_of_a_row_stays(
    trips: Company, row: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowWrites, "not_as_put", lambda _self, _connection, _cells: set())
    with triggered(trips.legacy, *MEDDLERS["after"]):
        assert len(trips.store.as_mirror().put_jointly([Cell(row, "BASE", 3, status("theirs")), *new_rows(1)])) == 2

    latest = trips.store.get_cell_latest(row, "BASE")
    assert latest is not None
    assert latest.body == status("mine")


def test_a_locked_row_is_left(trips: Company, row: UUID) -> None:
    cell, others = Cell(row, "BASE", 3, status(3)), new_rows(4)
    before = left(trips, [cell])
    with closing(trips.legacy.connect()) as holder:
        rows(holder, "SELECT 1 FROM trips WHERE trip_uuid = %s FOR UPDATE", (str(row),))
        begun = time.monotonic()
        assert_stored(trips.store.as_mirror().put_jointly([*others[:2], cell, *others[2:]]), others)
        assert time.monotonic() - begun < PATIENT.lock_seconds / 2

    assert left(trips, [cell]) == before


def test_what_is_too_slow_together_is_left_and_what_was_stored_is_said(trips: Company) -> None:
    cells = new_rows(20)
    mirror = trips.store.as_mirror()
    with triggered(trips.legacy, "BEFORE INSERT", "PERFORM pg_sleep(0.05); RETURN NEW;"):
        assert mirror.using(deadline=0.3).put_jointly(cells) == set()
        for cell in cells[:2]:
            mirror.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)

    assert trips.store.get_cells([cell.key for cell in cells]) == [*cells[:2], *[None] * 18]


def test_a_body_that_is_too_large_is_left(server: PostgresServer) -> None:
    with company(server) as made:
        small = PostgresBackend(made.store.database, made.store.layout, shards=8, max_body_bytes=30).as_mirror()
        large, others = Cell(uuid4(), "BASE", 1, status("x" * 30)), new_rows(2)
        assert small.put_jointly([others[0], large, others[1]]) == keys_of(others)


def test_more_than_one_commit_takes_go_by_several(trips: Company, row: UUID) -> None:
    cells = new_rows(3 * CELLS_MAX)
    assert trips.store.as_mirror().put_jointly(cells) == keys_of(cells)


def test_i9_they_wait_for_the_barrier_a_switch_that_has_begun_decides_first(trips: Company, row: UUID) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND objid = 1"
    cells = [Cell(row, "BASE", 3, status(3)), *new_rows(2)]
    with closing(trips.legacy.connect(autocommit=True)) as switch, ThreadPoolExecutor(1) as pool:
        rows(switch, f"SELECT pg_advisory_lock({K}, {DOOR}), pg_advisory_lock({K}, {BARRIER})")
        put = pool.submit(trips.store.as_mirror().put_jointly, cells)
        wait_until("it waits", lambda: trips.legacy.sql(waiting) == [(1,)])
        switch.close()
        assert put.result(30) == keys_of(cells)

    assert trips.store.get_cells([cell.key for cell in cells]) == cells


def test_an_absent_server_says_nothing_of_the_cells(server: PostgresServer) -> None:
    with company(server) as made:
        mirror = made.store.as_mirror()
        assert len(mirror.put_jointly(new_rows(2))) == 2
        made.legacy.server.query(f'ALTER DATABASE "{made.legacy.name}" ALLOW_CONNECTIONS false')
        made.legacy.server.query(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{made.legacy.name}'"
        )
        cells = new_rows(2)
        assert mirror.put_jointly(cells) == set()
        with pytest.raises(LegacyUnavailable):
            mirror.put_cell(cells[0].row_key, "BASE", 1, cells[0].body)
