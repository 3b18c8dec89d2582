"""Accidents of a move between real servers: torn reads, lost claims, errors while a shard is closed, other leaders.

I1, I2, I6, I9.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore, Json
from schemaless_core.cell.answers import Scalar
from schemaless_core.control.jobs.records import JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import InvalidConfig, InvalidServer, StaleEpoch
from schemaless_core.logcopy.ends import copies_of
from schemaless_core.moves import entries, steps
from schemaless_core.moves.mover import Mover
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.ports import MoveRecord, MoveState, Placed
from schemaless_core.moves.record import ControlMoveRecord
from schemaless_core.moves.runner import KIND, MoveRunner, ShardOrder
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.moves.steps import Moved, MoveStop, MoveStopped
from schemaless_core.promotion.ports import SILENT
from schemaless_core.servers.places import Places
from schemaless_core.servers.topology import with_place
from schemaless_core.steps import Step, Steps, run
from tests.damage import execute
from tests.fscks import kinds_in, row_of
from tests.indexing import catch_up
from tests.stores import ServerEngine, Stores

SHARDS = 4


def mover(store: Datastore, shard: int = 0, to: str = "b") -> Mover:
    return store.moves().mover(ShardOrder(shard, to), MoveOrder((shard,), to, hold_seconds=5.0))


def until(moving: Steps[Moved | MoveStopped], step: Step, times: int = 1) -> None:
    """A mover that stands before a step, for the so-manieth time."""
    for _ in range(times):
        while next(moving) is not step:
            pass


def states(store: Datastore, shard: int = 0) -> dict[str, str]:
    found = {name: cluster.ask(lambda node: node.heads(None, Deadline(5))) for name, cluster in store.clusters.items()}
    return {name: heads[shard].state.status for name, heads in found.items() if shard in heads}


# The record.


def test_i9_a_decision_between_topology_and_record_is_not_missed(stores: Stores) -> None:
    """Else a mover carries the decision out at the epoch before it."""
    with stores.fresh("sqlite", shards=SHARDS) as store:
        torn, other = ControlMoveRecord(store.control, {}, 0), ControlMoveRecord(store.control, {}, 0)
        assert torn.change(torn.find(), MoveRecord(MoveState.COPY, "a", "b"))
        seen, find_newest = other.find(), torn._topologies.find_newest

        def decided_behind() -> Any:
            topology = find_newest()
            other.decide(seen, MoveRecord(MoveState.OVER, "a", "b", 1, 0))
            return topology

        with patch.object(torn._topologies, "find_newest", decided_behind):
            found = torn.find()

        assert (found.move.state, found.placed) == (MoveState.OVER, Placed("b", 2))


def test_a_mover_that_finds_the_shard_closed_by_a_later_move_looks_again(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """It would ask for ever for an opening that is refused."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        slow, later = mover(store), mover(store, to="a")
        moving = steps.move(slow._ports, "b")
        until(moving, steps.CLOSE)
        assert mover(store).run(lambda step: None) == Moved(Placed("b", 2))
        coming_back = steps.move(later._ports, "a")
        until(coming_back, steps.BESIDE)

        assert [next(moving) for _ in range(3)] == [steps.ASK, steps.OPEN, steps.LOOK]
        assert run(coming_back) == Moved(Placed("a", 3))


# Two movers, and errors.


def test_no_shard_is_closed_for_a_copy_that_another_mover_has_claimed(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        one, other = mover(store), mover(store)
        moving = steps.move(one._ports, "b")
        until(moving, steps.CLAIMED)
        other._ports.shards.prepare("b", 1)

        with pytest.raises(StopIteration) as ended:
            next(moving)

        assert ended.value.value == MoveStopped(MoveStop.OVERTAKEN)
        assert states(store)["a"] == "RW"


def test_i1_a_shard_is_open_again_when_an_error_that_stays_ends_its_move(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The tables of the copy are dropped while the shard takes no writes."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        moves, leave = store.moves(), ClusterShards.leave
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))

        def leave_and_drop(rows: ClusterShards, cluster: str, epoch: int) -> Any:
            store.put_cell(row, "BASE", 2, "copied while it is closed")
            seen = leave(rows, cluster, epoch)
            execute(store, SHARDS - 1, f"DROP DATABASE {store.config.datastore}_0000")
            return seen

        with patch.object(ClusterShards, "leave", leave_and_drop):
            assert moves.runner(job, "test").run() is JobState.DONE

        (found,) = moves.jobs.findings(job.id)
        assert str(found.body["reason"])
        assert store.put_cell(row, "BASE", 3, "after").epoch == 2
        assert kinds_in(store) == []


@pytest.mark.parametrize("is_stalled", [False, True])
def test_a_mover_whose_part_another_worker_has_ends(stores: Stores, *, is_stalled: bool) -> None:
    """A stalled one may wake with an error before its lease's thread hears of anything."""
    with stores.fresh("sqlite", shards=SHARDS) as store:
        jobs = store.moves().jobs
        job = jobs.create("move", {}, [[0, "b"]], is_detached=True)
        runs = list[int]()

        class Overtaken:
            """Its part goes to another worker while it copies."""

            cells, seconds_closed, is_closed = 0, 0.0, False

            def run(self, hear: Callable[[Step], None]) -> Moved | MoveStopped:
                runs.append(1)
                assert jobs.claim(job.id, "other", 30.0), "the lease of the first one is over"
                if is_stalled:
                    raise InvalidServer("a", "a test")
                while True:
                    hear(steps.READ)
                    time.sleep(0.01)  # a page takes a moment; the lease's thread hears of it meanwhile

            def give_up(self) -> Moved | MoveStopped:
                raise AssertionError("it is not its own any more")

            def is_settled(self) -> bool:
                return False

            def silence(self, cluster: str) -> str:
                return ""

        runner = MoveRunner(jobs, job.id, "first", lambda each: Overtaken())
        runner._lease_seconds = -1.0 if is_stalled else 0.0

        assert runner.serve_part()

        assert runs == [1]


def test_a_worker_that_waits_for_a_dead_source_is_stopped_and_another_one_ends_the_move(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The shard takes writes at its new cluster; the old one does not answer."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))
        first, tries = moves.runner(job, "first"), list[int]()

        def silent(rows: ClusterShards, cluster: str, epoch: int) -> Any:
            tries.append(1)
            if len(tries) > 1:  # it was opened by the first one
                first.stop()
            return SILENT

        with patch.object(ClusterShards, "close", silent):
            assert first.run() is JobState.RUNNING
        assert states(store)["b"] == "RW"

        assert moves.runner(job, "second").run() is JobState.DONE

        assert moves.jobs.progress(job.id).counts["moved"] == 1
        assert states(store) == {"a": "MOVED", "b": "RW"}


def test_a_shard_that_stayed_is_free_for_another_move_and_its_job_is_taken_back(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0, 1), "b", hold_seconds=5.0)))
        leave = ClusterShards.leave

        def leave_one(rows: ClusterShards, cluster: str, epoch: int) -> Any:
            if rows._shard == 1:
                raise InvalidServer("a", "a test")
            return leave(rows, cluster, epoch)

        with patch.object(ClusterShards, "leave", leave_one):
            assert moves.runner(job, "test").run() is JobState.DONE
        (found,) = moves.jobs.findings(job.id)
        assert (found.body["shard"], states(store, 1)["a"]) == (1, "RW")

        (back,) = moves.back(job)

        assert back.shards == (0,)
        assert moves.plan(back).refusals == ()
        assert moves.plan(MoveOrder((1,), "a")).refusals == ()


def test_two_movers_of_two_shards_close_none_in_vain(server_engine: ServerEngine, stores: Stores) -> None:
    """Each decision changes the topology, and compares the place of its own shard alone."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        slow = steps.move(mover(store, 0)._ports, "b")
        until(slow, steps.DECIDE)

        assert mover(store, 1).run(lambda step: None) == Moved(Placed("b", 2))

        assert run(slow) == Moved(Placed("b", 2)), "at the first try"


def test_a_move_that_was_cancelled_is_not_begun_again_by_its_worker(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The command gives it up while the worker copies."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))
        claims = ClusterShards.claims

        def cancelled_before(rows: ClusterShards, cluster: str) -> Any:
            moves.jobs.cancel(KIND, job.id)
            assert store.moves().give_up(job) == 1
            return claims(rows, cluster)

        with patch.object(ClusterShards, "claims", cancelled_before):
            assert moves.runner(job, "test").run() is JobState.CANCELLED

        assert states(store)["a"] == "RW"
        assert moves.plan(MoveOrder((0,), "a")).refusals == ()


def test_i5_shards_that_a_dead_mover_has_left_closed_are_named(server_engine: ServerEngine, stores: Stores) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0, 1), "b", hold_seconds=5.0)))
        assert moves.closed(job) == ()
        until(steps.move(mover(store, 0)._ports, "b"), steps.BESIDE)
        until(steps.move(mover(store, 1)._ports, "b"), steps.ARRIVE)

        assert moves.closed(job) == (0, 1)


# What was compared, and with whom.


def test_i2_what_was_compared_on_a_server_that_leads_no_more_is_compared_again(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that leads may have lost the end of the copy. The control: without a promotion it is not looked at."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        monkeypatch.setattr(steps, "NEAR_CELLS", 0)
        row = row_of(store, 0)
        for ref_key in (1, 2, 3):
            store.put_cell(row, "BASE", ref_key, "right")
        moving = mover(store)
        until(steps.move(moving._ports, "b"), steps.REPLICATED)
        execute(
            store, SHARDS - 1, f"UPDATE {store.config.datastore}_0000.cell SET body = '\"wrong\"' WHERE added_id = 2"
        )
        assert moving._copies.beside("a", "b", 0) is True
        assert sums(store, "a") != sums(store, "b")

        store.clusters["b"].hear(Lead(1, 1), is_leased=False)
        assert moving._copies.beside("a", "b", 0) is True

        assert sums(store, "a") == sums(store, "b")


def sums(store: Datastore, cluster: str) -> Any:
    return store.clusters[cluster].ask(lambda node: copies_of(node).sum(0, 1, 100, Deadline(5)))


# Entries.

#: So many values of each kind that some of each are of shard 0.
VALUES = 40
FIELDS: dict[str, Callable[[int], Scalar]] = {
    "string": lambda n: f"driver {n}",
    "float": lambda n: n / 3 - 2.5,
    "decimal": lambda n: f"{n - 9}.25",
    "datetime": lambda n: (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n)).isoformat(),
}


def test_i6_entries_are_copied_by_pages_whatever_their_first_field_is(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of what an old copy has; and each page is heard of, so that a move ends between two."""
    monkeypatch.setattr(entries, "ENTRIES_PER_PAGE", 3)
    indexes: list[Json] = [
        {"table": f"by_{kind}", "column_defs": [{"column_key": "BASE", "fields": [{"field": kind, "type": kind}]}]}
        for kind in FIELDS
    ]
    with stores.fresh(server_engine, shards=SHARDS, indexes=indexes) as store:
        bodies: list[Any] = [{kind: value(n) for kind, value in FIELDS.items()} for n in range(VALUES)]
        store.put_cells([Cell(row_of(store, 0), "BASE", 1, body) for body in bodies])
        catch_up(store)
        before = {kind: asked(store, kind) for kind in FIELDS}
        moving, pages = mover(store), list[Step]()
        copying = steps.move(moving._ports, "b")
        until(copying, steps.REPLICATED)
        spoil = "UPDATE {}_0000.by_{}_v1 SET row_key = REVERSE(row_key)"
        for kind in FIELDS:
            execute(store, SHARDS - 1, spoil.format(store.config.datastore, kind))

        assert moving.run(pages.append) == Moved(Placed("b", 2))

        assert pages.count(steps.READ) >= 2 * len(FIELDS)
        assert {kind: asked(store, kind) for kind in FIELDS} == before
        assert kinds_in(store) == []


def asked(store: Datastore, kind: str) -> list[Any]:
    return [store.query_index(f"by_{kind}", FIELDS[kind](n), limit=50).entries for n in range(VALUES)]


# Readers.


def test_i9_a_source_that_was_cut_off_answers_no_reader_with_less_than_the_next_owner_took(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Though a promotion has fenced it since, and the reader has heard of nothing."""
    config = stores.config(server_engine, shards=SHARDS)
    with Datastore.open(config) as store, Datastore.open(config) as stale, Datastore.open(config) as other:
        store.create_schema()
        row = row_of(store, 0)
        for each in (store, stale, other):
            each.put_cell(row, "BASE", 1, "before")
        with patch.object(ClusterShards, "close", lambda rows, cluster, epoch: SILENT):
            assert mover(store).run(lambda step: None) == MoveStopped(MoveStop.SILENT, "a")
        store.put_cell(row, "BASE", 2, "on the next cluster")
        assert states(store) == {"a": "GOING", "b": "RW"}

        with patch.object(Places, "confirm", lambda places, went_by, deadline: set(went_by)):
            assert newest(stale, row) == 1, "the control: nothing asks whether it is there"
        with patch.object(stale._places._looks[0], "_ask", never):
            assert newest(stale, row) == 2, "that it has gone its new server says, too"

        execute(other, 0, "UPDATE {state} SET state = 'RO' WHERE shard = 0")
        assert states(store)["a"] == "RO"
        assert other.get_row(row)["BASE"].ref_key == 2


def newest(store: Datastore, row: UUID) -> int:
    cell = store.get_cell_latest(row, "BASE")
    assert cell is not None
    return cell.ref_key


def test_i9_readers_of_a_closed_shard_are_answered_by_what_the_control_database_says_alone(stores: Stores) -> None:
    """All servers of a configuration say nothing of a cluster that it lacks, which may have the shard by now."""
    with stores.fresh("sqlite", shards=SHARDS) as store:
        row = row_of(store, 0)
        store.put_cell(row, "BASE", 1, "before")
        execute(store, 0, "UPDATE shard_state SET state = 'GOING' WHERE shard = 0")
        control, *servers = store._places._looks

        for silent in (never, failing):
            with patch.object(control, "_ask", silent), pytest.raises(StaleEpoch, match="no source says"):
                store.using(deadline=0.3).get_cell(row, "BASE", 1)
        with patch.object(servers[1], "_ask", never):
            assert store.get_cell(row, "BASE", 1) is not None


def test_i9_a_control_database_without_a_topology_and_a_configuration_without_a_cluster_confirm_nothing(
    stores: Stores,
) -> None:
    with stores.fresh("sqlite", shards=SHARDS) as store:
        row, topologies = row_of(store, 0), store._places._topologies
        store.put_cell(row, "BASE", 1, "before")
        execute(store, 0, "UPDATE shard_state SET state = 'GOING' WHERE shard = 0")
        newest = topologies.find_newest()
        assert newest is not None

        with (
            patch.object(topologies, "find_newest", lambda: None),
            patch.object(store._places._looks[2], "_ask", failing),
            pytest.raises(StaleEpoch, match="no source says"),
        ):
            store.using(deadline=0.3).get_cell(row, "BASE", 1)
        with (
            patch.object(topologies, "find_newest", lambda: with_place(newest, 0, "c", 2)),
            pytest.raises(InvalidConfig, match="lacks 'c'"),
        ):
            store.get_cell(row, "BASE", 1)


def never() -> None:
    ENDED.wait(1.0)
    raise TimeoutError("a test")


def failing() -> None:
    raise TimeoutError("a test")


#: Ends what never answers.
ENDED = threading.Event()
