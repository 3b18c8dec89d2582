"""Moves of shards between real servers: what travels, and the way back (I1, I3, I7)."""

from __future__ import annotations

from uuid import UUID, uuid4

from schemaless_core import Cell, Datastore
from schemaless_core.control.jobs.records import JobState
from schemaless_core.moves.moves import MoveOrder
from tests.fscks import DEEP, kinds_in
from tests.stores import ServerEngine, Stores


def rows_of(store: Datastore, shard: int, count: int) -> list[UUID]:
    rows = [row for row in (uuid4() for _ in range(400 * count)) if store.shard_of(row) == shard]
    return rows[:count]


def moved(store: Datastore, *shards: int, to: str) -> Datastore:
    moves = store.moves()
    job = moves.begin(moves.plan(MoveOrder(shards, to)))
    assert moves.runner(job, "test").run() is JobState.DONE
    assert not moves.jobs.findings(job.id), moves.jobs.findings(job.id)
    return store


def log_of(store: Datastore, shard: int) -> list[tuple[object, ...]]:
    page = store.get_cells_for_shard(shard, 0, 10_000)
    return [(cell.added_id, *cell.key, cell.body, cell.created_at) for cell in page.cells]


def test_i3_a_moved_shard_has_the_same_log_and_takes_puts(server_engine: ServerEngine, stores: Stores) -> None:
    with stores.fresh(server_engine, shards=4) as store:
        rows = rows_of(store, 0, 30)
        store.put_cells([Cell(row, "BASE", 1, {"n": n}) for n, row in enumerate(rows)])
        before = log_of(store, 0)

        moved(store, 0, to="b")

        assert log_of(store, 0) == before
        put = store.put_cell(rows[0], "BASE", 2, "after")
        assert (put.added_id, put.epoch) == (31, 2)
        moved(store, 0, to="a")
        assert store.get_cell_latest(rows[0], "BASE") == Cell(rows[0], "BASE", 2, "after")
        assert store.put_cell(rows[0], "BASE", 3, "back").added_id == 32
        assert kinds_in(store, DEEP) == []
