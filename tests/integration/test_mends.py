"""Repair of cells on each engine: what it changes, what it refuses, and what readers of the log see of it (I2, I3)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import BatchFailed, Cell, CellConflict, Datastore, StaleEpoch
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.engine.mending import Mended
from schemaless_core.engine.sqlite import mending as sqlite_mending
from schemaless_core.engine.sqlite.mending import ADVANCE, SQLiteMending
from schemaless_core.errors import LogHole
from schemaless_core.failpoints import FailpointReached
from schemaless_core.mends import Mends, RawCell
from tests.damage import execute, lose, spoil
from tests.repairs import failing_at
from tests.stores import Stores

EPOCH = 0


_OPENED: dict[str, Datastore] = {}


@pytest.fixture
def mirror(datastore_engine: str, stores: Stores) -> Datastore:
    """One shard that takes copiers only."""
    return opened(datastore_engine, stores)


def opened(engine: str, stores: Stores) -> Datastore:
    """The same of an engine, empty: created once, since servers take their time."""
    if engine not in _OPENED:
        _OPENED[engine] = Datastore.open(stores.config(engine, shards=1))
        _OPENED[engine].create_schema(status=ShardStatus.COPY)
    store = _OPENED[engine]
    for table in ("cell", "purged", "mended", "offset"):
        execute(store, 0, f"DELETE FROM {{{table}}} WHERE {{of}}")
    execute(store, 0, "UPDATE {state} SET next_added_id = 1, authority_epoch = 0, state = 'COPY'")
    return store


def copier(store: Datastore, epoch: int = EPOCH) -> Datastore:
    return store.as_copier(epoch)


def mends_of(store: Datastore, epoch: int = EPOCH) -> Mends:
    return copier(store, epoch).mends.of_job("repair-1")


def filled(store: Datastore, count: int = 5) -> list[Cell]:
    """Cells of one shard, in the order of its log."""
    cells = [Cell(UUID(int=n), "BASE", 1, {"n": n}) for n in range(1, count + 1)]
    for cell in cells:
        copier(store).put_cell(*cell.key, cell.body)
    return cells


def holder(store: Datastore) -> str:
    """The cluster that has the shard."""
    return next(iter(store.schema.plan().topology.clusters))


def raw(store: Datastore, cell: Cell) -> RawCell:
    found = mends_of(store).find(cell.key)
    assert found is not None
    return found


def log_of(store: Datastore, start: int | datetime = 0, limit: int = 100) -> list[tuple[int | None, UUID]]:
    return [(cell.added_id, cell.row_key) for cell in copier(store).get_cells_for_shard(0, start, limit).cells]


def test_bytes_are_replaced_and_both_are_in_the_audit_table(mirror: Datastore) -> None:
    cells = filled(mirror)
    spoil(mirror, cells[1], b"\xffno json")
    with pytest.raises(LogHole, match="no JSON at added id 2"):  # the control: no reader passes it
        log_of(mirror)

    damaged = raw(mirror, cells[1])
    assert damaged.body == b"\xffno json"
    assert mends_of(mirror).mend(damaged, b'{"n":2}')

    assert copier(mirror).get_cell(*cells[1].key) == cells[1]
    assert [key for _id, key in log_of(mirror)] == [cell.row_key for cell in cells]
    (line,) = mends_of(mirror).lines("repair-1")
    assert (line.action, line.added_id, line.old_body, line.new_body) == (Mended.MEND, 2, b"\xffno json", b'{"n":2}')


def test_a_cell_that_is_another_by_now_stays_as_it_is(mirror: Datastore) -> None:
    cells = filled(mirror)
    spoil(mirror, cells[1], b'{"n":0}')
    seen = raw(mirror, cells[1])
    spoil(mirror, cells[1], b'{"n":9}')

    assert not mends_of(mirror).mend(seen, b'{"n":2}')
    assert not mends_of(mirror).purge(seen)

    assert raw(mirror, cells[1]).body == b'{"n":9}'
    assert mends_of(mirror).lines() == []


def test_a_put_that_meets_damage_is_a_conflict_of_its_own_cell(mirror: Datastore) -> None:
    """One damaged cell hinders no other of its batch, and no relay: it sets that change aside."""
    cells = filled(mirror, 3)
    spoil(mirror, cells[1], b"torn")
    store = copier(mirror)

    with pytest.raises(BatchFailed) as raised:
        store.put_cells([*cells, Cell(uuid4(), "BASE", 1, "new")])
    with pytest.raises(CellConflict) as single:
        store.put_cell(*cells[1].key, cells[1].body)

    lost = raised.value.results[1]
    assert isinstance(lost, CellConflict)
    assert (lost.is_damaged, lost.stored, single.value.is_damaged) == (True, None, True)
    assert [isinstance(result, CellConflict) for result in raised.value.results] == [False, True, False, False]


@pytest.mark.parametrize("portion", [200, 1])
def test_many_changes_of_a_shard_are_one_transaction(
    mirror: Datastore, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    """A kill behind it finds all of them with their lines. Its control: one by one, it finds the first alone."""
    cells = filled(mirror)
    for cell in cells[:3]:
        spoil(mirror, cell, b"torn")
    wanted = [(raw(mirror, cell), canonical_bytes(cell.body)) for cell in cells[:3]]
    monkeypatch.setattr("schemaless_core.mends.CELLS_PER_WRITE", portion)

    with failing_at("mending.answered"), pytest.raises(FailpointReached):
        mends_of(mirror).mend_all(wanted)

    done = 3 if portion > 1 else 1
    assert [raw(mirror, cell).is_canonical for cell in cells[:3]] == [n < done for n in range(3)]
    lines = mends_of(mirror).lines()
    assert sorted((line.added_id, line.old_body, line.new_body) for line in lines) == [
        (n, b"torn", canonical_bytes(cells[n - 1].body)) for n in range(1, done + 1)
    ]


def test_of_many_only_those_are_changed_that_are_as_they_were_seen(mirror: Datastore) -> None:
    cells = filled(mirror, 6)
    seen = [raw(mirror, cell) for cell in cells]
    for n in (1, 4):
        spoil(mirror, cells[n], b'{"n":9}')

    assert mends_of(mirror).mend_all([(each, b'{"n":0}') for each in seen[:3]]) == [True, False, True]
    assert mends_of(mirror).purge_all(seen[3:]) == [True, False, True]

    assert [each.body for each in mends_of(mirror).find_all([cell.key for cell in cells]) if each] == [
        b'{"n":0}', b'{"n":9}', b'{"n":0}', b'{"n":9}'
    ]  # fmt: skip
    assert [added_id for added_id, _key in log_of(mirror)] == [1, 2, 3, 5]
    assert sorted(line.added_id for line in mends_of(mirror).lines()) == [1, 3, 4, 6]
    assert mends_of(mirror).purged_of([cell.row_key for cell in cells]) == [cells[3].key, cells[5].key]


def test_many_lost_cells_close_a_hole_each(mirror: Datastore) -> None:
    """I3: readers meet every cell. One that is there is found, and its hole stays; one without a hole is not put."""
    cells = filled(mirror, 9)
    holes = [lose(mirror, cells[n]) for n in (1, 4, 5)]
    fresh = Cell(uuid4(), "BASE", 1, {"it's": "a \\ 'TOKENS' VALUES ROWS"})

    filled_in = mends_of(mirror).put_all_beside(
        [(cells[1], holes[0]), (cells[0], holes[2]), (fresh, 9), (cells[4], holes[1])]
    )

    assert [None if each is None else (each.is_created, each.cell.added_id) for each in filled_in] == [
        (True, 10), (False, 1), None, (True, 11)
    ]  # fmt: skip
    assert mends_of(mirror).holes(0) == [holes[2]]
    assert mends_of(mirror).put_all_beside([(fresh, holes[2])])[0] is not None
    assert copier(mirror).get_cell(*fresh.key) == fresh
    assert {key for _id, key in log_of(mirror)} == {each.row_key for each in [*cells, fresh]} - {cells[5].row_key}
    copier(mirror).put_cell(*cells[5].key, cells[5].body)
    assert log_of(mirror)[-1] == (13, cells[5].row_key)


def test_two_repairs_at_once_do_it_once(mirror: Datastore) -> None:
    cells = filled(mirror)
    seen = raw(mirror, cells[2])

    assert [mends_of(mirror).purge(seen), mends_of(mirror).purge(seen)] == [True, False]

    assert [line.action for line in mends_of(mirror).lines()] == [Mended.PURGE]


def test_readers_of_the_log_pass_what_was_purged(mirror: Datastore) -> None:
    """I3: at the beginning, in the middle, several in a row, and at the head; from wherever they read."""
    cells = filled(mirror, 9)
    gone = {1, 4, 5, 9}
    for number in gone:
        assert mends_of(mirror).purge(raw(mirror, cells[number - 1]))
    left = [n for n in range(1, 10) if n not in gone]

    for start in range(10):
        page = copier(mirror).get_cells_for_shard(0, start, 100)
        assert [cell.added_id for cell in page.cells] == [n for n in left if n > start]
    read, place = [], 0
    while (page := copier(mirror).get_cells_for_shard(0, place, 2)).next_location > place:
        read += [cell.added_id for cell in page.cells]
        place = page.next_location
    assert (read, place) == (left, 9)


def test_a_cell_that_was_purged_may_come_again_and_gets_a_new_added_id(mirror: Datastore) -> None:
    cells = filled(mirror, 3)
    mends_of(mirror).purge(raw(mirror, cells[2]))

    result = copier(mirror).put_cell(*cells[2].key, cells[2].body)

    assert result.added_id == 4
    assert [added_id for added_id, _key in log_of(mirror)] == [1, 2, 4]


def test_a_hole_that_no_repair_purged_still_stops_readers(mirror: Datastore) -> None:
    """The control of passing: only what is recorded is passed."""
    cells = filled(mirror, 6)
    mends_of(mirror).purge(raw(mirror, cells[1]))
    assert lose(mirror, cells[2]) == 3

    assert log_of(mirror, limit=1) == [(1, cells[0].row_key)]
    with pytest.raises(LogHole) as raised:
        log_of(mirror)
    assert raised.value.missing == 3


def test_times_lead_to_the_same_place_over_purged_ids(mirror: Datastore) -> None:
    cells = filled(mirror, 9)
    before = copier(mirror).get_cells_for_shard(0, 0, 100).cells
    for number in (4, 5, 6, 9):
        mends_of(mirror).purge(raw(mirror, cells[number - 1]))

    left = [cell for cell in before if cell.added_id not in (4, 5, 6, 9)]
    for moment in {cell.created_at for cell in before if cell.created_at}:
        found = [key for _id, key in log_of(mirror, moment)]
        assert found == [cell.row_key for cell in left if cell.created_at and cell.created_at >= moment]
    assert log_of(mirror, datetime(2200, 1, 1, tzinfo=UTC)) == []


def test_a_lost_cell_comes_behind_the_head_and_closes_a_hole(mirror: Datastore) -> None:
    """I3: who has seen the head never finds anything below it."""
    cells = filled(mirror, 5)
    for number in (2, 4):
        lose(mirror, cells[number - 1])
    mends = mends_of(mirror)
    assert mends.holes(0) == [2, 4]

    filled_in = mends.put_beside(cells[3], mends.holes(0)[0])

    assert filled_in is not None
    assert (filled_in.is_created, filled_in.cell.added_id) == (True, 6)
    assert mends.holes(0) == [4]
    again = mends.put_beside(cells[3], 4)
    assert again is not None
    assert (again.is_created, again.cell.added_id) == (False, 6)
    assert mends.holes(0) == [4]
    mends.put_beside(cells[1], 4)
    page = copier(mirror).get_cells_for_shard(0, 0, 100)
    times = [cell.created_at for cell in page.cells if cell.created_at]
    assert times == sorted(times)
    assert [cell.row_key for cell in page.cells] == [UUID(int=n) for n in (1, 3, 5, 4, 2)]
    assert page.next_location == page.head == 7


def test_a_hole_that_is_filled_meanwhile_is_no_place(mirror: Datastore) -> None:
    cells = filled(mirror, 3)
    lose(mirror, cells[1])
    mends = mends_of(mirror)
    mends.put_beside(cells[1], 2)
    other = Cell(uuid4(), "BASE", 1, "x")

    assert mends.put_beside(other, 2) is None
    assert mends.put_beside(other, 5) is None  # above the head is no hole
    assert copier(mirror).get_cell(*other.key) is None


def test_a_reader_that_has_passed_a_hole_meets_the_cell_behind_the_head(mirror: Datastore) -> None:
    """I3, I7: a group, or a service that keeps a position of its own; and one that waits at the hole goes on."""
    cells = filled(mirror, 3)
    passed = copier(mirror).get_cells_for_shard(0, 0, 100).position
    lose(mirror, cells[1])

    filled_in = mends_of(mirror).put_beside(cells[1], 2)

    assert filled_in is not None
    assert filled_in.cell.added_id == 4
    assert [cell.key for cell in copier(mirror).get_cells_for_shard(0, passed, 100).cells] == [cells[1].key]
    assert [added_id for added_id, _key in log_of(mirror)] == [1, 3, 4]
    assert copier(mirror).put_cell(uuid4(), "BASE", 1, "next").added_id == 5
    assert {line.action for line in mends_of(mirror).lines()} == {Mended.PUT, Mended.CLOSE}


def test_control_in_the_hole_a_reader_that_has_passed_it_would_never_meet_the_cell(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = opened("sqlite", stores)
    cells = filled(mirror, 3)
    passed = copier(mirror).get_cells_for_shard(0, 0, 100).position
    lose(mirror, cells[1])
    insert = SQLiteMending._insert

    def into_the_hole(self: SQLiteMending, connection: Any, shard: int, added_id: int, cell: Any) -> None:
        insert(self, connection, shard, 2, cell)
        connection.execute(ADVANCE, (added_id, 0, shard))  # the head stays where it was

    monkeypatch.setattr(SQLiteMending, "_insert", into_the_hole)
    monkeypatch.setattr(SQLiteMending, "_close", lambda *_given: None)

    mends_of(mirror).put_beside(cells[1], 2)

    assert cells[1].row_key in [key for _id, key in log_of(mirror)]
    assert copier(mirror).get_cells_for_shard(0, passed, 100).cells == []


def test_a_hole_without_a_record_is_closed(mirror: Datastore) -> None:
    cells = filled(mirror, 4)
    lose(mirror, cells[1])
    mends = mends_of(mirror)

    assert [mends.close_hole(0, 2), mends.close_hole(0, 2), mends.close_hole(0, 3)] == [True, False, False]

    assert [added_id for added_id, _key in log_of(mirror)] == [1, 3, 4]
    assert mends.holes(0) == []


def test_i3_repairs_and_writers_take_turns_at_the_counter_row(mirror: Datastore) -> None:
    """Cells are lost, put back, mended and purged while others put: the log stays whole and its times never fall."""
    cells, others = filled(mirror, 12), [Cell(uuid4(), "BASE", 1, n) for n in range(60)]
    mends = mends_of(mirror)

    def write() -> None:
        for cell in others:
            copier(mirror).put_cell(*cell.key, cell.body)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for first in range(0, 12, 3):
            lost, torn, extra = cells[first : first + 3]
            lose(mirror, lost)
            (hole,) = mends.holes(0)
            filled_in = mends.put_beside(lost, hole)
            assert filled_in is not None
            assert filled_in.cell.added_id > hole
            spoil(mirror, torn, b"torn")
            assert mends.mend(raw(mirror, torn), canonical_bytes(torn.body))
            assert mends.purge(raw(mirror, extra))
        writing.result()

    page = copier(mirror).get_cells_for_shard(0, 0, 1000)
    assert (page.next_location, page.head) == (76, 76)
    assert len(page.cells) == 68
    times = [cell.created_at for cell in page.cells if cell.created_at]
    assert times == sorted(times)
    assert {cell.key for cell in page.cells} == {cell.key for cell in [*cells, *others]} - {
        cell.key for cell in cells[2::3]
    }


def test_a_store_that_became_the_authority_refuses(mirror: Datastore) -> None:
    """I9: a repair of a mirror is fenced by the shard itself, at the latest when that is told of the switch."""
    cells = filled(mirror, 3)
    seen, mends = raw(mirror, cells[0]), mends_of(mirror)
    lose(mirror, cells[1])
    for cluster in mirror.clusters:
        mirror.authority.open(cluster, 2)

    for stale in (mends, mends_of(mirror, epoch=2), mends_of(mirror, epoch=9)):
        changes: list[Callable[[], object]] = [
            partial(stale.mend, seen, b"1"),
            partial(stale.purge, seen),
            partial(stale.put_beside, cells[1], 2),
            partial(stale.close_hole, 0, 2),
        ]
        for change in changes:
            with pytest.raises(StaleEpoch):
                change()
    assert mends.lines() == []

    owner = mirror.as_owner(2).mends
    assert owner.mend(seen, b'{"n":7}')
    with pytest.raises(StaleEpoch):
        mirror.as_owner(1).mends.purge(seen)


def test_control_without_the_mirrors_condition_a_repair_changes_the_authoritys_cell(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = opened("sqlite", stores)
    (cell,) = filled(mirror, 1)
    for cluster in mirror.clusters:
        mirror.authority.open(cluster, 2)
    monkeypatch.setattr(sqlite_mending, "check_mend", lambda gate, state: gate.check_write(state))

    assert mends_of(mirror, epoch=2).mend(raw(mirror, cell), b'"foreign"')


def test_control_without_a_look_at_the_bytes_those_of_another_writer_are_lost(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = opened("sqlite", stores)
    (cell,) = filled(mirror, 1)
    seen = raw(mirror, cell)
    spoil(mirror, cell, b'{"n":9}')
    monkeypatch.setattr(SQLiteMending, "_is_there", lambda *_arguments: True)

    assert mends_of(mirror).mend(seen, b'{"n":2}')
    assert raw(mirror, cell).body == b'{"n":2}'


def test_a_mirror_again_refuses_those_of_before(mirror: Datastore) -> None:
    cells = filled(mirror, 1)
    for cluster in mirror.clusters:
        mirror.authority.open(cluster, 2)
        assert mirror.authority.close(cluster, 3)

    with pytest.raises(StaleEpoch):
        mends_of(mirror, epoch=2).purge(raw(mirror, cells[0]))
    assert mends_of(mirror, epoch=3).purge(raw(mirror, cells[0]))


def test_large_bodies_and_odd_keys_are_mended(mirror: Datastore) -> None:
    key = CellKey(UUID(bytes=b"'\\%s\x00\n\"" + b"\xff" * 9), "ä %s'", -5)
    copier(mirror).put_cell(*key, "x" * 3_000_000)
    raw_cell = mends_of(mirror).find(key)
    assert raw_cell is not None

    assert mends_of(mirror).mend(raw_cell, b'"' + b"y" * 3_000_000 + b'"')

    assert copier(mirror).get_cell(*key).body == "y" * 3_000_000  # type: ignore[union-attr]  # it is there
    (latest,) = mends_of(mirror).latest([ChildKey(key.row_key, key.column_name)], {})
    assert latest is not None
    assert latest.key == key
    assert mends_of(mirror).purge(latest)
    assert mends_of(mirror).latest([ChildKey(key.row_key, key.column_name)], {}) == [None]


def test_a_server_of_an_earlier_version_answers_as_before(mirror: Datastore) -> None:
    """Until `schema apply` it has neither table: a hole is a hole, and `schema plan` says what is lacking."""
    cells = filled(mirror, 3)
    for table in ("mended", "purged"):
        execute(mirror, 0, f"DROP TABLE {{{table}}}")
    lose(mirror, cells[1])

    with pytest.raises(LogHole):
        log_of(mirror)
    assert mirror.schema.plan().missing_tables[holder(mirror)] == ["mended", "purged"]

    mirror.create_schema(status=ShardStatus.COPY)
    assert mends_of(mirror).put_beside(cells[1], 2) is not None


def test_a_conflict_is_gone_once_the_bytes_are_right(mirror: Datastore) -> None:
    """I4: the copy that could not be carried is found there, equal."""
    (cell,) = filled(mirror, 1)
    spoil(mirror, cell, b'{"n":0}')
    with pytest.raises(CellConflict):
        copier(mirror).put_cell(*cell.key, cell.body)

    mends_of(mirror).mend(raw(mirror, cell), b'{"n":1}')

    assert copier(mirror).put_cell(*cell.key, cell.body).added_id == 1
