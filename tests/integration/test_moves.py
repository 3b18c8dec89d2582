"""Moves of shards between real servers: what travels, and the way back (I1, I2, I3, I6, I7)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore, Json
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mending import BodyChange, MendNote
from schemaless_core.errors import MoveRefused
from schemaless_core.failpoints import FailpointReached
from schemaless_core.moves.moves import MovePlan
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.ports import Placed
from schemaless_core.moves.runner import KIND, ShardOrder
from schemaless_core.moves.steps import Moved, MoveStop, MoveStopped
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.fscks import kinds_in, row_of
from tests.indexing import catch_up
from tests.repairs import failing_at
from tests.serving import told
from tests.stores import ServerEngine, Stores

INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}
SHARDS = 4
NOTE = MendNote("test", "a tester", "here")


def moved(store: Datastore, *shards: int, to: str) -> int:
    """How many cells were copied."""
    moves = store.moves()
    job = moves.begin(moves.plan(MoveOrder(shards, to, hold_seconds=5.0)))
    assert moves.runner(job, "test").run() is JobState.DONE
    assert not moves.jobs.findings(job.id), moves.jobs.findings(job.id)
    return moves.jobs.progress(job.id).counts["cells"]


def log_of(store: Datastore, shard: int) -> list[tuple[object, ...]]:
    page = store.get_cells_for_shard(shard, 0, 10_000)
    return [(cell.added_id, *cell.key, cell.body, cell.created_at) for cell in page.cells]


def purge(store: Datastore, shard: int, row_key: UUID, body: bytes | None) -> None:
    """Have repair delete a cell, or give it other bytes."""
    deadline, standing = Deadline(5), Standing(Kind.OWNER)
    found = store._router.read(
        shard, lambda node: node.find(shard, row_key.bytes, b"BASE", 1, deadline), standing, "primary_only", deadline
    )
    change = BodyChange(found.cells[0], body)
    (is_done,), _epoch = store._router.write(
        shard, lambda node, gate: node.mending.change(gate, [change], NOTE, deadline), standing, deadline
    )
    assert is_done


def test_i3_a_shard_goes_with_all_that_belongs_to_it_and_comes_back(
    server_engine: ServerEngine, stores: Stores
) -> None:
    notebook = Notebook()
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX], triggers=quick(attempts=1)) as store:
        rows = [row_of(store, 0) for _ in range(30)]
        notebook.failing = lambda cell: cell.row_key == rows[3]
        trigger = noting(notebook)
        store.put_cells([Cell(row, "BASE", 1, {"driver": f"driver {n % 3}"}) for n, row in enumerate(rows)])
        with working(store, [trigger]):
            wait_until_caught_up(store, "noted")
        catch_up(store)
        purge(store, 0, rows[5], None)
        purge(store, 0, rows[6], b'{"driver":"driver 9"}')
        before, entries = log_of(store, 0), store.query_index("trips_of_driver", "driver 0", limit=100).entries
        parked, offset = store.triggers.parked("noted"), told(store.triggers.offsets.find("noted", [0]))[0]

        assert moved(store, *range(SHARDS // 2), to="b") == 29

        assert log_of(store, 0) == before
        assert store.query_index("trips_of_driver", "driver 0", limit=100).entries == entries
        assert [row[:-1] for row in store.triggers.parked("noted")] == [row[:-1] for row in parked]
        there = told(store.triggers.offsets.find("noted", [0]))[0]
        assert (there.offset, there.state.epoch) == (offset.offset, 2)
        put = store.put_cell(rows[0], "BASE", 2, {"driver": "driver 1"})
        assert (put.added_id, put.epoch) == (31, 2)
        purge(store, 0, rows[7], None)
        with working(store, [trigger]):
            wait_until_caught_up(store, "noted")
        delivered = len(notebook.cells)

        assert moved(store, 0, to="a") == 1, "what was there before is not copied again"

        assert len(log_of(store, 0)) == 29
        assert store.put_cell(rows[0], "BASE", 3, {"driver": "driver 2"}).added_id == 32
        with working(store, [trigger]):
            wait_until_caught_up(store, "noted")
        assert [cell.ref_key for cell in notebook.cells[delivered:]] == [3], "nothing is delivered again"
        assert kinds_in(store) == ["parked"]


def test_i1_a_shard_that_a_dead_mover_left_closed_is_opened_again_and_moved(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        mover = store.moves().mover(ShardOrder(0, "b"), MoveOrder((0,), "b", hold_seconds=5.0))
        with failing_at("move.beside"), pytest.raises(FailpointReached):
            mover.run(lambda step: None)
        assert kinds_in(store) == ["fenced"]

        again = store.moves().mover(ShardOrder(0, "b"), MoveOrder((0,), "b", hold_seconds=5.0))
        stayed = again.run(lambda step: None)

        assert stayed == MoveStopped(MoveStop.STAYED)
        assert store.put_cell(row, "BASE", 2, "between").epoch == 2
        assert again.run(lambda step: None) == Moved(Placed("b", 3))
        assert store.put_cell(row, "BASE", 3, "after").added_id == 3
        assert kinds_in(store) == []


def test_i1_what_takes_too_long_stays_where_it_is(server_engine: ServerEngine, stores: Stores) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=0.0)))

        assert moves.runner(job, "test").run() is JobState.DONE

        (found,) = moves.jobs.findings(job.id)
        assert "--hold-ms" in str(found.body["reason"])
        assert store.put_cell(row, "BASE", 2, "after").epoch == 2, "its move was given up"


def test_i9_a_move_that_is_given_up_has_the_shard_stay(server_engine: ServerEngine, stores: Stores) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b")))
        runner = moves.runner(job, "test")
        with failing_at("move.practise"), pytest.raises(FailpointReached):
            runner.run()
        other = moves.plan(MoveOrder((0,), "a"))
        assert f"part of {job.id}" in other.refusals[0]

        moves.jobs.cancel(KIND, job.id)

        assert moves.give_up(job) == 1
        assert other.there == (0,)
        assert store.put_cell(row_of(store, 0), "BASE", 1, "stays").epoch == 2
        assert kinds_in(store) == []
        (copy,) = moves.old_copies()
        assert (copy.shard, copy.cluster) == (0, "b")


@pytest.mark.parametrize("died", ["move.arrive", "move.close", "move.open", "move.forget"])
def test_i5_one_that_is_decided_upon_is_ended_though_its_job_is_cancelled(
    server_engine: ServerEngine, stores: Stores, died: str
) -> None:
    """Else the shard takes no writes, and no worker serves the job."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))
        with failing_at(died), pytest.raises(FailpointReached):
            moves.runner(job, "test").run()
        moves.jobs.cancel(KIND, job.id)

        assert moves.give_up(job) == 1

        assert store.put_cell(row, "BASE", 2, "at b").epoch == 2
        assert store.get_cell(row, "BASE", 1) is not None
        assert kinds_in(store) == []


def test_i1_a_move_ends_when_the_replicas_of_the_new_cluster_know_of_it(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Else the death of its primary loses what was safe before. While a replica is stopped the shard stays."""
    with stores.replicated.fresh(server_engine, shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        with stores.replicated.not_applying(server_engine):
            mover = store.moves().mover(ShardOrder(0, "b"), MoveOrder((0,), "b", hold_seconds=5.0))
            mover._patience.waits_seconds = 0.5

            assert mover.run(lambda step: None) == MoveStopped(MoveStop.SILENT, "b")
            assert store.put_cell(row, "BASE", 2, "still here").epoch == 1

        moved(store, 0, to="b")

        replica = stores.replicated.clusters(server_engine)[1].replicas[0]
        name = store.config.datastore
        (found,) = replica.query(f"SELECT state, epoch, next_added_id FROM {name}_meta.shard_state WHERE shard = 0")
        assert list(found.values()) == ["RW", 2, 3]


def test_of_two_orders_for_a_shard_at_once_one_is_begun(server_engine: ServerEngine, stores: Stores) -> None:
    """Both were planned before, and both are half written down before either looks again."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves, both = store.moves(), threading.Barrier(2, timeout=20.0)
        plans = [moves.plan(MoveOrder(shards, "b", hold_seconds=5.0)) for shards in ((0,), (0, 1))]

        def begin(plan: MovePlan) -> Job | MoveRefused:
            try:
                return moves.begin(plan, lambda _connection, _job: both.wait())
            except MoveRefused as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(begin, plans))

        (job,) = (each for each in ended if isinstance(each, Job))
        (refused,) = (each for each in ended if isinstance(each, MoveRefused))
        assert refused.message.startswith(f"Shards 0 are part of {job.id}")
        assert [each.id for each in moves.jobs.all(KIND)] == [job.id]
        assert moves.runner(job, "test").run() is JobState.DONE
        for plan in plans:
            with pytest.raises(MoveRefused, match="moved since"):
                moves.begin(plan)


def test_files_are_refused(stores: Stores) -> None:
    with stores.fresh("sqlite", shards=SHARDS) as store:
        plan = store.moves().plan(MoveOrder((0,), "b"))

        assert "is a file" in plan.refusals[0]
        with pytest.raises(MoveRefused):
            store.moves().begin(plan)


def test_i7_a_group_that_begins_as_a_shard_has_gone_is_served_there(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Its process takes the old cluster for the owner, whose shard is a copy by now."""
    config = stores.config(server_engine, shards=SHARDS, triggers=quick())
    with Datastore.open(config) as store, Datastore.open(config) as stale:
        store.create_schema()
        row = row_of(store, 0)
        stale.put_cell(row, "BASE", 1, "before")
        moved(store, 0, 1, to="b")

        stale.triggers.offsets.begin("late", "now")

        offsets = told(store.triggers.offsets.find("late"))
        assert {shard: at.offset.added_id for shard, at in offsets.items() if at.offset} == {0: 1, 1: 0, 2: 0, 3: 0}
