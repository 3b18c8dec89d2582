"""How long a move keeps a shard's puts waiting, what it says meanwhile, and who may serve it (I1, I5, I11)."""

from __future__ import annotations

import copy
import re
import time
from typing import Any
from unittest.mock import patch

import pytest

from schemaless_core import Cell, Datastore, InvalidRequest, InvalidServer, Json
from schemaless_core.control.jobs.records import JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.errors import NodeUnavailable
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.moves import copies, runner, steps
from schemaless_core.moves.closed_time import ClosedTime
from schemaless_core.moves.mover import Mover
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.ports import Placed
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.moves.steps import Moved, MoveStop, MoveStopped
from schemaless_core.steps import Step, Steps, run
from tests.chaos.actors import wait_until
from tests.fscks import kinds_in, row_of
from tests.indexing import catch_up
from tests.purges import INDEX
from tests.stores import ServerEngine, Stores
from tripstore.cli.jobs.documents import progress_document

SHARDS = 4
#: Of a shard that is closed while its target stalls; one call to a server may take 30 times as long.
HOLD_SECONDS = 1.0
CLOSED_SECONDS_MAX = 4.0
WAIT_SECONDS = 20.0


def mover(store: Datastore, hold_seconds: float = 5.0) -> Mover:
    return store.moves().mover(ShardOrder(0, "b"), MoveOrder((0,), "b", hold_seconds))


def until(moving: Steps[Moved | MoveStopped], step: Step) -> None:
    while next(moving) is not step:
        pass


def answers(store: Datastore, cluster: str) -> bool:
    try:
        store.clusters[cluster].ask(lambda node: node.opened_at(Deadline(5.0)))
    except NodeUnavailable:
        return False
    return True


@pytest.mark.parametrize("step", [steps.READ, steps.BESIDE], ids=lambda step: step.name)
def test_i5_a_target_that_stalls_in_the_flip_closes_no_shard_for_longer_than_was_asked_for(
    server_engine: ServerEngine, stores: Stores, step: Step
) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row, moving = row_of(store, 0), mover(store, HOLD_SECONDS)
        store.put_cell(row, "BASE", 1, "before")
        server = stores.primaries(server_engine)["b"]
        going = steps.move(moving._ports, "b")
        until(going, steps.LEAVE)
        until(going, step)

        server.pause()
        try:
            assert run(going) == MoveStopped(MoveStop.STAYED)
            put = store.put_cell(row, "BASE", 2, "after")
        finally:
            server.resume()

        assert put.epoch == 2
        assert moving.seconds_closed < CLOSED_SECONDS_MAX
        wait_until("its breaker lets it be asked", lambda: answers(store, "b"))
        assert mover(store).run(lambda step: None) == Moved(Placed("b", 3)), "as soon as it answers"


def test_i1_a_shard_that_has_gone_is_opened_however_long_that_takes(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """No way leads back: its time is over, and the calls that open it have their own. The target has lost its copy."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row, moving = row_of(store, 0), mover(store)
        store.put_cell(row, "BASE", 1, "before")
        going = steps.move(moving._ports, "b")
        until(going, steps.ARRIVE)
        moving._patience.closed_at = time.monotonic() - 2 * moving._patience.hold_seconds
        server, name = stores.clusters(server_engine)[1].primary, store.config.datastore
        server.query(f"DELETE FROM {name}_0000.cell")
        server.query(f"DELETE FROM {name}_meta.shard_epoch WHERE shard = 0")
        server.query(f"UPDATE {name}_meta.shard_state SET epoch = 0, next_added_id = 1 WHERE shard = 0")
        until(going, steps.BESIDE)

        assert moving._patience.deadline(30.0).remaining_seconds() > moving._patience.hold_seconds
        assert run(going) == Moved(Placed("b", 2))
        assert store.get_cell(row, "BASE", 1) is not None
        assert store.put_cell(row, "BASE", 2, "after").epoch == 2


def test_a_shard_that_is_closed_in_vain_is_closed_a_few_times_at_most(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Each time is a pause of its puts."""
    with stores.fresh(server_engine, shards=SHARDS) as store:
        moves, leave, closed = store.moves(), ClusterShards.leave, list[str]()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))

        def noted(rows: ClusterShards, cluster: str, epoch: int) -> Any:
            closed.append(cluster)
            return leave(rows, cluster, epoch)

        with (
            patch.object(ClusterShards, "leave", noted),
            patch.object(ClosedTime, "is_over", lambda patience: patience.is_closed),
        ):
            assert moves.runner(job, "test").run() is JobState.DONE

        (found,) = moves.jobs.findings(job.id)
        assert "--hold-ms" in str(found.body["reason"])
        assert closed == ["a"] * runner.STAYS
        assert kinds_in(store) == []


def test_nothing_is_made_and_no_other_shard_looked_at_while_a_shard_is_closed(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """A look at the columns of thousands of tables takes longer than a shard may be closed."""
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX]) as store:
        store.put_cell(row_of(store, 0), "BASE", 1, {"driver": "driver 1"})
        catch_up(store)
        server, moving = stores.primaries(server_engine)["b"], mover(store)
        going = steps.move(moving._ports, "b")
        until(going, steps.BESIDE)
        before = made(server)

        with patch.object(MySQLNode, "create_index", side_effect=AssertionError("the flip looks at all tables")):
            until(going, steps.REPLICATED)

        assert made(server) == before
        assert run(going) == Moved(Placed("b", 2))
        assert kinds_in(store) == []


def made(server: Any) -> int:
    """How many tables the server was asked to make."""
    (found,) = server.query("SHOW GLOBAL STATUS LIKE 'Com_create_table'")
    return int(str(found["Value"]))


def test_i11_what_is_copied_is_counted_on_the_way_and_once(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large shard takes hours; its command says how far it is."""
    monkeypatch.setattr(copies, "CELLS_PER_PAGE", 4)
    monkeypatch.setattr(runner, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(runner, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(steps, "NEAR_CELLS", 0)
    with stores.fresh(server_engine, shards=SHARDS) as store:
        store.put_cells([Cell(row_of(store, 0), "BASE", 1, "x") for _ in range(10)])
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))
        rest, seen = CopyThrottle.rest, list[int]()

        def heard(throttle: CopyThrottle, cells: int, read_seconds: float, seconds: float) -> None:
            """Until the page is counted: the lease of the part is renewed by another thread."""
            rest(throttle, cells, read_seconds, seconds)
            deadline = time.monotonic() + WAIT_SECONDS
            while progress_document(moves.jobs.progress(job.id)).rows <= sum(seen[-1:]):
                assert time.monotonic() < deadline, "no page is counted before the shard has moved"
                time.sleep(0.01)  # another thread of the mover counts, without an event
            throttle.hear()
            told = progress_document(moves.jobs.progress(job.id))
            assert told.workers[0].rate > 0
            seen.append(told.rows)

        with patch.object(CopyThrottle, "rest", heard):
            assert moves.runner(job, "test").run() is JobState.DONE

        assert seen == [4, 8, 10]
        ended = progress_document(moves.jobs.progress(job.id))
        assert (ended.rows, ended.rows_estimate, ended.counts["cells"]) == (10, 10, 10)


def test_the_reason_that_a_server_gives_is_told(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TRIES", 2)
    config = stores.config(server_engine, shards=SHARDS)
    proxy = stores.primaries(server_engine)["b"].proxy()
    config["clusters"]["b"]["primary"] = proxy.url
    with Datastore.open(config) as store:
        store.create_schema()
        moves = store.moves()
        job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))

        proxy.refuse()
        assert moves.runner(job, "test").run() is JobState.DONE
        proxy.heal()

        (found,) = moves.jobs.findings(job.id)
        assert re.search(r"cluster b does not answer, .* \(.*[^.]\)$", str(found.body["reason"])), found.body


def test_a_worker_whose_login_may_not_move_shards_leaves_them_to_one_that_may(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """It has the rights of a worker, which makes no databases."""
    config = stores.config(server_engine, shards=SHARDS)
    limited = copy.deepcopy(config)
    limited["control"] = config["clusters"]["a"]["primary"]
    clusters = stores.clusters(server_engine)
    for name, cluster in zip("ab", clusters, strict=True):
        cluster.primary.query("CREATE USER mover@'127.0.0.1' IDENTIFIED BY 'm0ver'")
        tables = rf"`{config['datastore'].replace('_', chr(92) + '_')}\_%`.*"
        cluster.primary.query(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO mover@'127.0.0.1'")
        limited["clusters"][name]["primary"] = f"mysql://mover:m0ver@127.0.0.1:{cluster.primary.port}"
    try:
        with Datastore.open(config) as store, Datastore.open(limited) as worker:
            store.create_schema()
            moves = store.moves()
            job = moves.begin(moves.plan(MoveOrder((0,), "b", hold_seconds=5.0)))

            with pytest.raises(InvalidServer, match="lacks a privilege"):
                worker.moves().runner(job, "worker").run()
            assert moves.runner(job, "operator").run() is JobState.DONE

            assert moves.jobs.findings(job.id) == []
            assert moves.jobs.progress(job.id).counts["moved"] == 1
    finally:
        for cluster in clusters:
            cluster.primary.query("DROP USER mover@'127.0.0.1'")


def test_a_worker_that_does_not_know_the_cluster_says_so(stores: Stores) -> None:
    """Its configuration is older than the job."""
    with stores.fresh("sqlite", shards=SHARDS) as store:
        moves = store.moves()
        spec: dict[str, Json] = {
            "shards": [0],
            "from": {"0": "a"},
            "to": "c",
            "hold_seconds": 0.8,
            "cells_per_second": None,
        }
        job = moves.jobs.create("move", spec, [[0, "c"]], is_detached=True)

        with pytest.raises(InvalidRequest, match="no cluster c"):
            moves.runner(job, "worker")
