"""Triggers: every cell is delivered, in order per shard, whatever some cells do; offsets move under fences (I7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellConflict, CellStore, ControlUnavailable, Datastore, InvalidRequest
from schemaless_core.engine.groups import GroupStep
from schemaless_core.servers.doctor import Doctor
from schemaless_core.triggers.leases.coordinator import GroupState
from schemaless_core.triggers.registry import trigger
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores

Opener = Callable[..., Datastore]


@pytest.fixture
def opened(datastore_engine: str, stores: Stores) -> Opener:
    """A fresh datastore with quick workers."""

    def open_it(shards: int = 4, **options: Any) -> Datastore:
        return stores.fresh(datastore_engine, shards=shards, triggers=quick(**options))

    return open_it


def new_cells(count: int, column: str = "BASE") -> list[Cell]:
    return [Cell(uuid4(), column, 1, n) for n in range(count)]


def heads_of(store: Datastore) -> dict[int, int]:
    return {shard: store.get_cells_for_shard(shard, 0, 1).head for shard in range(store.config.shards)}


def test_every_cell_of_the_column_is_delivered_once_and_in_order(opened: Opener) -> None:
    store, notebook = opened(), Notebook()
    cells = new_cells(60)
    store.put_cells(cells[:30] + new_cells(30, "STATUS"))

    with working(store, [noting(notebook)]):
        for cell in cells[30:]:
            store.put_cell(*cell.key, cell.body)
        wait_until_caught_up(store, "noted")

    assert sorted(notebook.keys) == sorted(cell.key for cell in cells)
    assert all(ids == sorted(ids) for ids in notebook.of_shards(store).values())


def test_an_offset_above_its_log_is_told_and_delivers_nothing_until_it_is_reset(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore of the shard alone: what is put next would be passed over (I7)."""
    store, notebook = opened(shards=1), Notebook()
    store.put_cells(new_cells(2))
    noted = noting(notebook)
    store.triggers.register(noted)
    store.triggers.offsets.reset("noted", {0: (1, 3)})
    cells = new_cells(1)

    with working(store, [noted]):
        wait_until("it is told", lambda: "triggers.offset_beyond" in events(caplog))
        (status,) = store.triggers.status("noted")
        facts = [
            finding.fact
            for finding in Doctor(store.config, store.clusters, store.control).findings()
            if finding.fact.name == "offsets"
        ]
        store.put_cells(cells)
        assert [fact.value for fact in facts] == ["noted is at 3 of epoch 1 in shard 0, whose log ends at 2"]
        assert (status.beyond, facts[0].is_fine) == ((0,), False)
        store.triggers.reset("noted", "beginning")
        wait_until_caught_up(store, "noted")

    assert cells[0].key in notebook.keys
    assert store.triggers.status("noted")[0].beyond == ()


def events(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {getattr(record, "event", "") for record in caplog.records}


def test_several_workers_with_threads_share_the_shards(opened: Opener) -> None:
    store, notebook = opened(shards=8), Notebook()
    cells = new_cells(200)
    with working(store, [noting(notebook)], workers=2, threads=3):
        store.put_cells(cells)
        wait_until_caught_up(store, "noted")
        wait_until("both serve", lambda: len({s.owner for s in store.triggers.status("noted")[0].shards}) == 2)
        more = new_cells(100)
        store.put_cells(more)
        wait_until_caught_up(store, "noted")

    assert {cell.key for cell in cells + more} == set(notebook.keys)
    firsts: dict[int, list[int]] = {}
    for shard, ids in notebook.of_shards(store).items():
        firsts[shard] = list(dict.fromkeys(ids))
    assert all(ids == sorted(ids) for ids in firsts.values())


def test_a_group_goes_on_where_it_was(opened: Opener) -> None:
    store, notebook = opened(), Notebook()
    first, second = new_cells(20), new_cells(20)
    store.put_cells(first)
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
    store.put_cells(second)

    with working(store, [noting(notebook, start=None)]):
        wait_until_caught_up(store, "noted")

    assert sorted(notebook.keys) == sorted(cell.key for cell in first + second)


def test_a_new_group_starts_now_at_the_beginning_or_at_a_time(opened: Opener) -> None:
    store = opened()
    old = new_cells(10)
    store.put_cells(old)
    newest = max(cell.created_at or datetime.now(UTC) for cell in store.get_cells([c.key for c in old]) if cell)
    time.sleep(0.002)
    books = {"now": Notebook(), "beginning": Notebook(), "time": Notebook()}
    between = new_cells(10)
    triggers = [noting(books["beginning"], start="beginning", name="beginning")]
    triggers.append(noting(books["now"], start="now", name="now"))
    store.triggers.register(triggers[1])  # from here on
    store.put_cells(between)
    triggers.append(noting(books["time"], start=newest, name="time"))

    with working(store, triggers):
        for name in books:
            wait_until_caught_up(store, name)

    assert set(books["beginning"].keys) == {cell.key for cell in old + between}
    assert set(books["now"].keys) == {cell.key for cell in between}
    assert {cell.key for cell in between} <= set(books["time"].keys)
    assert len(books["time"].keys) <= len(between) + len(old)


def test_a_first_run_must_say_where_it_starts(opened: Opener) -> None:
    with pytest.raises(InvalidRequest, match="does not say where it starts") as raised:
        opened().triggers.worker([noting(Notebook(), start=None)])

    assert "beginning" in (raised.value.hint or "")


def test_a_function_with_a_batch_gets_several_cells_and_a_poison_cell_among_them_is_found(opened: Opener) -> None:
    store = opened(shards=1)
    cells = new_cells(20)
    store.put_cells(cells)
    sizes: list[int] = []
    seen: set[Any] = set()

    @trigger(column="BASE", start="beginning", batch=8, name="batched")
    def batched(cells: list[Cell]) -> None:
        if any(cell.body == 11 for cell in cells):
            raise ValueError("eleven")
        sizes.append(len(cells))
        seen.update(cell.body for cell in cells)

    with working(store, [batched]):
        wait_until_caught_up(store, "batched")

    assert max(sizes) == 8
    assert seen == set(range(20)) - {11}
    assert [row.ref_key for row in store.triggers.parked("batched")] == [1]


def test_a_poison_cell_is_parked_and_the_others_of_its_shard_go_on(opened: Opener) -> None:
    store, notebook = opened(shards=1, retry_seconds=60.0), Notebook()
    notebook.failing = lambda cell: cell.body == 3
    cells = new_cells(10)
    store.put_cells(cells)

    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")

    (parked,) = store.triggers.parked("noted")
    assert (parked.row_key, parked.attempts) == (cells[3].row_key.bytes, 3)
    shard, others = parked.shard, [each for each in range(store.config.shards) if each != parked.shard]
    rows_of_shards = store.triggers.parking.rows_of
    assert rows_of_shards("noted", [shard, *others]) == {shard: {parked.row_key}, **{each: set() for each in others}}
    assert rows_of_shards("noted", [shard], {shard: parked.added_id}) == {shard: {parked.row_key}}
    assert rows_of_shards("noted", [shard], {shard: parked.added_id - 1}) == {shard: set()}
    assert "refuses" in parked.error
    assert [cell.body for cell in notebook.cells] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_failing_cell_holds_up_its_own_shard_only(opened: Opener) -> None:
    store, notebook = opened(shards=2, first_pause_seconds=0.5, attempts=2), Notebook()
    poison, *others = islice(keys_in(store, 0), 3)
    elsewhere = list(islice(keys_in(store, 1), 3))
    notebook.failing = lambda cell: cell.row_key == poison
    store.triggers.register(noting(notebook))

    with working(store, [noting(notebook)]):
        wait_until("it serves", lambda: store.triggers.status("noted")[0].unserved == 0)
        for row_key in (poison, *others, *elsewhere):
            store.put_cell(row_key, "BASE", 1, "x")
        wait_until("the other shard is done", lambda: len(notebook.keys) >= 3)
        first = {cell.row_key for cell in notebook.cells}
        wait_until_caught_up(store, "noted")

    assert first == set(elsewhere)
    assert {cell.row_key for cell in notebook.cells} == {*others, *elsewhere}


def test_parked_cells_are_tried_again_on_a_schedule_and_at_once_when_asked(opened: Opener) -> None:
    store, notebook = opened(shards=1, retry_seconds=60.0), Notebook()
    notebook.failing = lambda cell: cell.body == 0
    store.put_cells(new_cells(3))
    with working(store, [noting(notebook)]):
        wait_until("it is parked", lambda: len(store.triggers.parked("noted")) == 1)
        notebook.failing = lambda _cell: False

        assert store.triggers.retry("noted") == 1

        wait_until("it is settled", lambda: store.triggers.parked("noted") == [])
    assert {str(cell.body) for cell in notebook.cells} == {"0", "1", "2"}


def test_with_cell_scope_later_cells_of_a_parked_cells_row_go_on_after_a_restart_too(opened: Opener) -> None:
    store, notebook = opened(shards=1, retry_seconds=60.0), Notebook()
    row_key = uuid4()
    notebook.failing = lambda cell: cell.ref_key == 1
    for ref_key in (1, 2):
        store.put_cell(row_key, "BASE", ref_key, ref_key)
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
    store.put_cell(row_key, "BASE", 3, 3)
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")

    assert [cell.ref_key for cell in notebook.cells] == [2, 3]


def test_with_row_scope_a_row_keeps_its_order(opened: Opener) -> None:
    store, notebook = opened(shards=1), Notebook()
    row_key, another = uuid4(), uuid4()
    is_broken = True
    notebook.failing = lambda cell: is_broken and cell.row_key == row_key and cell.ref_key == 1

    with working(store, [noting(notebook, park_scope="row")]):
        for ref_key in (1, 2, 3):
            store.put_cell(row_key, "BASE", ref_key, ref_key)
        store.put_cell(another, "BASE", 1, "goes on")
        wait_until_caught_up(store, "noted")
        assert [cell.row_key for cell in notebook.cells] == [another]
        assert [(row.ref_key, row.is_waiting) for row in store.triggers.parked("noted")] == [
            (1, False),
            (2, True),
            (3, True),
        ]
        is_broken = False
        wait_until("all went", lambda: store.triggers.parked("noted") == [])
        store.put_cell(row_key, "BASE", 4, 4)
        wait_until_caught_up(store, "noted")

    assert [cell.ref_key for cell in notebook.cells if cell.row_key == row_key] == [1, 2, 3, 4]


def test_too_many_parked_cells_halt_the_group_until_a_person_resumes_it(opened: Opener) -> None:
    store, notebook = opened(shards=2, halt_after=3, retry_seconds=60.0), Notebook()
    notebook.failing = lambda _cell: True
    cells = new_cells(12)
    store.put_cells(cells)

    def state() -> GroupState:
        return store.triggers.status("noted")[0].record.state

    with working(store, [noting(notebook)]):
        wait_until("it is halted", lambda: state() is GroupState.HALTED)
    assert len(store.triggers.parked("noted")) == 3
    notebook.failing = lambda _cell: False

    with working(store, [noting(notebook)]):  # the halt survives a restart
        time.sleep(0.5)
        assert notebook.cells == []
        assert "3 cells are parked" in store.triggers.status("noted")[0].record.reason
        store.triggers.resume("noted")
        wait_until_caught_up(store, "noted")
        store.triggers.retry("noted")
        wait_until("the parked ones went too", lambda: len(notebook.cells) == 12)

    assert state() is GroupState.RUNNING


def test_an_owner_with_an_old_fence_moves_no_offset(opened: Opener) -> None:
    store = opened(shards=1)
    store.put_cells(new_cells(10))
    offsets = store.triggers.offsets
    offsets.begin("noted", "beginning")
    offsets.claim("noted", {0: 4})
    offsets.claim("noted", {0: 5})

    offsets.advance("noted", {0: GroupStep(4, 1, 7, 1)})
    assert [seen.offset.added_id for seen in _found(store)] == [0]
    offsets.advance("noted", {0: GroupStep(5, 1, 6, 1)})
    assert [seen.offset.added_id for seen in _found(store)] == [6]
    offsets.advance("noted", {0: GroupStep(5, 1, 5, 1)})  # a packet that a slow server runs late

    assert [(seen.offset.added_id, seen.offset.fence) for seen in _found(store)] == [(6, 5)]


def _found(store: Datastore) -> list[Any]:
    return list(store.triggers.offsets.find("noted").values())


def test_a_worker_whose_fence_was_passed_lets_go_and_another_delivers(opened: Opener) -> None:
    """Another worker claims its shards: it can save nothing more, and the coordinator hears of the fence."""
    store, notebook = opened(shards=2), Notebook()
    with working(store, [noting(notebook)]):
        wait_until("it serves", lambda: store.triggers.status("noted")[0].unserved == 0)
        store.triggers.offsets.claim("noted", {0: 40, 1: 40})

        cells = new_cells(20)
        store.put_cells(cells)

        wait_until_caught_up(store, "noted")
    assert {cell.key for cell in cells} == set(notebook.keys)
    assert all(seen.offset.fence > 40 for seen in _found(store))


def test_a_reset_group_delivers_again(opened: Opener) -> None:
    store, notebook = opened(), Notebook()
    cells = new_cells(12)
    store.put_cells(cells)
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
        assert store.triggers.reset("noted", "beginning") == dict.fromkeys(range(4), 0)
        wait_until("all came again", lambda: len(notebook.keys) == 24)
        wait_until_caught_up(store, "noted")
        store.triggers.reset("noted", "beginning", shards=[0])
        in_shard_0 = sum(store.shard_of(cell.row_key) == 0 for cell in cells)
        wait_until("shard 0 came again", lambda: len(notebook.keys) == 24 + in_shard_0)

    assert store.triggers.reset("noted", "now") == heads_of(store)


def test_a_removed_group_is_forgotten_and_may_begin_anew(opened: Opener) -> None:
    store, notebook = opened(), Notebook()
    store.put_cells(new_cells(5))
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
    store.triggers.remove("noted")
    with pytest.raises(InvalidRequest, match="no group 'noted'"):
        store.triggers.status("noted")

    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")

    assert len(notebook.keys) == 10


def test_status_says_exactly_how_far_a_group_is(opened: Opener) -> None:
    store, notebook = opened(shards=2), Notebook()
    in_0, in_1 = list(islice(keys_in(store, 0), 5)), list(islice(keys_in(store, 1), 1))
    for row_key in in_0 + in_1:
        store.put_cell(row_key, "BASE", 1, "x")
    store.triggers.register(noting(notebook))

    (status,) = store.triggers.status()

    assert [(s.added_id, s.head, s.lag_cells, s.owner) for s in status.shards] == [(0, 5, 5, None), (0, 1, 1, None)]
    assert (status.lag_cells, status.parked, status.unserved) == (6, 0, 2)
    assert 0 < status.lag_seconds < 60


def test_a_transactional_trigger_puts_its_cells_with_the_offset(opened: Opener) -> None:
    store = opened(shards=2)
    calls: list[UUID] = []

    @trigger(column="BASE", start="beginning", transactional=True, name="billing")
    def billing(row_key: UUID, store: CellStore) -> None:
        calls.append(row_key)
        store.append_cell(row_key, "STATUS", {"is_completed": False})
        latest = store.get_cell_latest(row_key, "STATUS")
        assert latest is not None  # its own staged cell
        store.put_cell(row_key, "STATUS", latest.ref_key + 1, {"is_completed": True})

    cells = new_cells(20)
    store.put_cells(cells)
    with working(store, [billing]):
        wait_until_caught_up(store, "billing")

    assert len(calls) == 20
    for cell in cells:
        history = store.get_history(cell.row_key, "STATUS")
        assert [(found.ref_key, found.body) for found in history] == [
            (2, {"is_completed": True}),
            (1, {"is_completed": False}),
        ]


def test_cells_that_join_an_offset_are_put_under_the_newest_fence_only(opened: Opener) -> None:
    store = opened(shards=1)
    offsets = store.triggers.offsets
    offsets.begin("noted", "beginning")
    offsets.claim("noted", {0: 4})
    row_key = uuid4()
    cell = Cell(row_key, "STATUS", 1, "joined")

    with pytest.raises(Exception, match="another worker"):
        store.triggers.joined.advance("noted", 0, [cell], GroupStep(3, 1, 1, 1))
    assert store.get_cell(*cell.key) is None

    store.triggers.joined.advance("noted", 0, [cell], GroupStep(4, 1, 1, 1))
    store.triggers.joined.advance("noted", 0, [cell], GroupStep(4, 1, 1, 1))  # repeated, as after a lost answer
    assert store.get_cell(*cell.key) == cell
    assert heads_of(store) == {0: 1}

    other = Cell(row_key, "STATUS", 1, "another body")
    with pytest.raises(CellConflict):
        store.triggers.joined.advance("noted", 0, [Cell(row_key, "STATUS", 2, "new"), other], GroupStep(4, 1, 2, 1))
    assert store.get_cell(row_key, "STATUS", 2) is None
    assert [seen.offset.added_id for seen in _found(store)] == [1]


def test_a_replica_serves_the_log_to_workers(server_engine: ServerEngine, stores: Stores) -> None:
    store, notebook = stores.replicated.fresh(server_engine, shards=4, triggers=quick()), Notebook()
    cells = new_cells(50)
    with working(store, [noting(notebook)], read="replica"):
        store.put_cells(cells)
        wait_until_caught_up(store, "noted")

    assert sorted(notebook.keys) == sorted(cell.key for cell in cells)


def test_after_a_promotion_the_cells_of_the_new_epoch_are_delivered_from_its_fork(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The promoted server never had cells 4 and 5: it gave their ids to others, which must not be skipped (I7)."""
    store, notebook = stores.fresh(server_engine, shards=1, triggers=quick()), Notebook()
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    store.put_cells(new_cells(5))
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
    server.query(f"DELETE FROM {name}_0000.cell WHERE added_id > 3")
    server.query(f"UPDATE {name}_meta.shard_state SET epoch = 2, next_added_id = 4")
    server.query(f"INSERT INTO {name}_meta.shard_epoch VALUES (0, 2, 4, UTC_TIMESTAMP(6), 'promoted')")
    others = [Cell(uuid4(), "BASE", 1, f"new {n}") for n in range(2)]
    store.put_cells(others)

    with working(store, [noting(notebook)]):
        wait_until("the new epoch's cells came", lambda: len(notebook.keys) >= 7)
        wait_until_caught_up(store, "noted")

    assert notebook.keys[5:] == [cell.key for cell in others]
    assert [(seen.offset.epoch, seen.offset.added_id) for seen in _found(store)] == [(2, 5)]


def test_cells_keep_flowing_without_the_coordinator(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    store, notebook = opened(), Notebook()

    def silent(*_arguments: object, **_named: object) -> None:
        raise ControlUnavailable("The control database cannot be reached.", hint="wait")

    first = [Cell(row_key, "BASE", 1, "first") for shard in range(4) for row_key in islice(keys_in(store, shard), 1)]
    store.put_cells(first)
    with working(store, [noting(notebook)]):
        wait_until("it serves", lambda: len(notebook.keys) == 4)
        with monkeypatch.context() as patch:
            patch.setattr(store.control, "begin", silent)
            time.sleep(2 * 0.9)  # longer than a lease
            cells = new_cells(20)
            store.put_cells(cells)
            wait_until("all came", lambda: len(notebook.keys) == 24)
            wait_until("they are saved", lambda: sum(seen.offset.added_id for seen in _found(store)) == 24)

    assert sorted(notebook.keys) == sorted(cell.key for cell in first + cells)
