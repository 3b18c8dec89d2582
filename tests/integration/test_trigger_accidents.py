"""What a review of the triggers broke: lost answers, promotions under a worker, slow functions, silent servers (I7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, Datastore
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.engine.groups import GroupStep, GroupTables
from schemaless_core.errors import ControlUnavailable, NodeUnavailable, SchemalessError
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.parking import Parking
from schemaless_core.triggers.registry import trigger
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.stores import ServerEngine, Stores

Opener = Callable[..., Datastore]


@pytest.fixture
def opened(datastore_engine: str, stores: Stores) -> Opener:
    def open_it(shards: int = 1, **options: Any) -> Datastore:
        return stores.fresh(datastore_engine, shards=shards, triggers=quick(**options))

    return open_it


def put_some(store: Datastore, count: int) -> list[Cell]:
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(count)]
    store.put_cells(cells)
    return cells


def tables_of(store: Datastore) -> GroupTables:
    """The tables of groups of the cluster that holds shard 0."""
    (name, *_) = [name for name in store.clusters if 0 in store.clusters[name].primary.node.shards_present()]
    return store.clusters[name].primary.node.groups


def loses_answers(monkeypatch: pytest.MonkeyPatch, tables: GroupTables, verb: str, times: int) -> list[int]:
    """The verb does its work; its first answers are lost on the way."""
    real, lost = getattr(tables, verb), list[int]()

    def lossy(*arguments: Any, **named: Any) -> Any:
        answer = real(*arguments, **named)
        if len(lost) < times:
            lost.append(1)
            raise NodeUnavailable("a node", "it did not answer within the deadline", is_timeout=True)
        return answer

    monkeypatch.setattr(tables, verb, lossy)
    return lost


def appending(name: str = "billing", failing: Callable[[], bool] = lambda: False) -> Any:
    @trigger(column="BASE", start="beginning", transactional=True, name=name)
    def billing(row_key: UUID, store: CellStore) -> None:
        store.append_cell(row_key, "STATUS", {"billed": True})
        if failing():
            raise ValueError("not now")

    return billing


def test_a_lost_answer_makes_no_transactional_trigger_put_twice(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    cells = put_some(store, 3)
    lost = loses_answers(monkeypatch, tables_of(store), "put_and_advance", 2)

    with working(store, [appending()]):
        wait_until_caught_up(store, "billing")

    assert len(lost) == 2
    assert [len(store.get_history(cell.row_key, "STATUS")) for cell in cells] == [1, 1, 1]


def test_a_parked_cell_of_a_transactional_trigger_is_settled_with_what_it_puts(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, is_failing = opened(retry_seconds=0.1), True
    (cell,) = put_some(store, 1)
    lost = loses_answers(monkeypatch, tables_of(store), "put_and_settle", 1)

    with working(store, [appending(failing=lambda: is_failing)]):
        wait_until("it is parked", lambda: store.triggers.parked("billing") != [])
        is_failing = False
        wait_until("it is settled", lambda: store.triggers.parked("billing") == [])

    assert lost
    assert len(store.get_history(cell.row_key, "STATUS")) == 1


def test_a_promotion_under_a_running_worker_loses_neither_cells_nor_parked_ones(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The promoted server does not know of the parking of cell 2, nor of the offset beyond it."""
    store = stores.fresh(server_engine, shards=1, triggers=quick(retry_seconds=60.0, checkpoint_seconds=0.02))
    notebook, name = Notebook(), store.config.datastore
    notebook.failing = lambda cell: cell.body == 1
    server = stores.clusters(server_engine)[0].primary
    put_some(store, 3)
    with working(store, [noting(notebook)]):
        wait_until_caught_up(store, "noted")
        assert [row.added_id for row in store.triggers.parked("noted")] == [2]
        notebook.failing = lambda _cell: False
        server.query(f"DELETE FROM {name}_meta.trigger_parked")
        server.query(f"UPDATE {name}_meta.trigger_offset SET added_id = 1")
        server.query(f"INSERT INTO {name}_meta.shard_epoch VALUES (0, 2, 4, UTC_TIMESTAMP(6), 'promoted')")
        server.query(f"UPDATE {name}_meta.shard_state SET epoch = 2")
        put_some(store, 2)
        wait_until("cell 2 came", lambda: {cell.added_id for cell in notebook.cells} == {1, 2, 3, 4, 5})
        wait_until_caught_up(store, "noted")


def test_a_server_that_was_promoted_takes_no_progress_that_was_made_with_the_former(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = stores.fresh(server_engine, shards=1)
    put_some(store, 5)
    offsets = store.triggers.offsets
    offsets.begin("noted", "beginning")
    offsets.claim("noted", {0: 3})
    stores.clusters(server_engine)[0].primary.query(f"UPDATE {store.config.datastore}_meta.shard_state SET epoch = 2")

    offsets.advance("noted", {0: GroupStep(3, 1, 5, 1)})

    (seen,) = offsets.find("noted").values()
    assert not isinstance(seen, SchemalessError)
    assert seen.offset is not None
    assert seen.offset.added_id == 0


def test_offsets_are_saved_while_a_put_holds_the_shards_counter(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=1)
    put_some(store, 5)
    offsets = store.triggers.offsets
    offsets.begin("noted", "beginning")
    offsets.claim("noted", {0: 3})
    with stores.clusters(server_engine)[0].primary.connect() as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {store.config.datastore}_meta.shard_state WHERE shard = 0 FOR UPDATE")
        (seen,) = offsets.advance("noted", {0: GroupStep(3, 1, 5, 1)}).values()
        holder.rollback()

    assert not isinstance(seen, SchemalessError)
    assert seen.offset is not None
    assert seen.offset.added_id == 5


def test_a_group_that_is_registered_again_repeats_no_fence(opened: Opener) -> None:
    store = opened()
    put_some(store, 10)
    fences = []
    for _ in range(2):
        with working(store, [noting(Notebook())]):
            wait_until_caught_up(store, "noted")
        (seen,) = store.triggers.offsets.find("noted").values()
        assert not isinstance(seen, SchemalessError)
        assert seen.offset is not None
        fences.append(seen.offset.fence)
        store.triggers.remove("noted")
        time.sleep(0.002)

    assert fences[0] + 1 < fences[1]  # the clock has gone on further than fences ever do


def test_a_slow_function_lets_offsets_be_saved_and_the_worker_stop(opened: Opener) -> None:
    store, called = opened(), list[int]()
    put_some(store, 100)

    @trigger(column="BASE", start="beginning", name="slow")
    def slow(cell: Cell) -> None:
        time.sleep(0.02)
        called.append(cell.added_id or 0)

    with working(store, [slow]):
        wait_until("some are called and saved", lambda: len(called) > 10 and _offset(store, "slow") > 0)
        started = time.monotonic()
    assert time.monotonic() - started < 1.0
    assert 0 < len(called) < 100
    assert _offset(store, "slow") == max(called)


def _offset(store: Datastore, group: str) -> int:
    return sum(shard.added_id or 0 for shard in store.triggers.status(group)[0].shards)


def test_a_pending_hand_over_waits_for_no_silent_coordinator(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard is to be given to an heir, and the coordinator does not answer: the others are served meanwhile."""
    store, notebook = opened(shards=4), Notebook()

    def silent(*_arguments: object) -> None:
        time.sleep(1.0)
        raise ControlUnavailable("The control database does not answer.", hint="wait")

    monkeypatch.setattr(Leases, "release", silent)
    with working(store, [noting(notebook)]) as (first,):
        put_some(store, 40)
        wait_until_caught_up(store, "noted")
        with working(store, [noting(Notebook())]):
            wait_until("a hand-over is pending", lambda: any(s.heir for s in store.triggers.status("noted")[0].shards))
            wait_until("its owner knows", lambda: first._leaving != [])
            kept = {s.shard for s in store.triggers.status("noted")[0].shards if s.heir is None}
            before, started = len(notebook.cells), time.monotonic()
            rows = [row for row in (uuid4() for _ in range(400)) if store.shard_of(row) in kept][:20]
            for row_key in rows:
                store.put_cell(row_key, "BASE", 1, "x")
            wait_until("they came", lambda: len(notebook.cells) >= before + 20)
            assert time.monotonic() - started < 1.0
            monkeypatch.undo()


def test_a_failure_that_cannot_be_written_down_as_it_is_ends_no_worker(opened: Opener) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("it has no words")

    store = opened(retry_seconds=60.0)
    put_some(store, 3)
    errors: list[Exception] = [ValueError("a file called \udcff"), Unspeakable(), ValueError("")]

    @trigger(column="BASE", start="beginning", name="odd")
    def odd(cell: Cell) -> None:
        raise errors[int(str(cell.body))]

    with working(store, [odd]):
        wait_until("all are parked", lambda: len(store.triggers.parked("odd")) == 3)

    assert [row.error for row in store.triggers.parked("odd")] == [
        "ValueError: a file called ?",
        "Unspeakable: ",
        "ValueError: ",
    ]


def test_a_server_that_goes_away_during_a_retry_ends_no_worker(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    store, notebook = opened(retry_seconds=0.1), Notebook()
    notebook.failing = lambda cell: cell.body == 0
    put_some(store, 2)
    real, refused = Parking.of_shard, list[int]()

    def away(parking: Parking, group: str, shard: int) -> Any:
        if len(refused) < 2:
            refused.append(1)
            raise NodeUnavailable("a node", "no connection")
        return real(parking, group, shard)

    monkeypatch.setattr(Parking, "of_shard", away)
    with working(store, [noting(notebook)]):
        wait_until("it was refused twice", lambda: len(refused) == 2)
        notebook.failing = lambda _cell: False
        wait_until("it is settled", lambda: store.triggers.parked("noted") == [])


def test_cells_that_a_dead_server_kept_from_being_put_are_not_parked(opened: Opener) -> None:
    """A batch of the function's own fails as long as some server is down: that says nothing of the cell."""
    store, tries = opened(attempts=2, first_pause_seconds=0.001), list[int]()
    put_some(store, 1)

    @trigger(column="BASE", start="beginning", name="copying")
    def copying() -> None:
        tries.append(1)
        if len(tries) < 6:
            raise BatchFailed([NodeUnavailable("a node", "no connection")])

    with working(store, [copying]):
        wait_until_caught_up(store, "copying")

    assert len(tries) == 6
    assert store.triggers.parked("copying") == []


def test_rows_wait_in_order_through_several_failures(opened: Opener) -> None:
    """With row scope: the first settles, the second fails and waits for its own time, the third stays behind it."""
    store, notebook = opened(retry_seconds=0.2), Notebook()
    row_key, failing = uuid4(), {1, 2}
    notebook.failing = lambda cell: cell.ref_key in failing
    for ref_key in (1, 2, 3):
        store.put_cell(row_key, "BASE", ref_key, ref_key)
    with working(store, [noting(notebook, park_scope="row")], threads=3):
        wait_until("all are parked", lambda: len(store.triggers.parked("noted")) == 3)
        failing.remove(1)
        wait_until("the first went", lambda: len(store.triggers.parked("noted")) == 2)
        store.put_cell(row_key, "BASE", 4, 4)
        time.sleep(0.3)
        assert [cell.ref_key for cell in notebook.cells] == [1]
        failing.clear()
        wait_until("all went", lambda: store.triggers.parked("noted") == [] and len(notebook.cells) == 4)

    assert [cell.ref_key for cell in notebook.cells] == [1, 2, 3, 4]
