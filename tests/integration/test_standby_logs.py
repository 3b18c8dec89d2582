"""A standby has the log of the one that it follows and no other, and what was not compared is said (I3, I7, I12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from schemaless_core import Datastore
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.errors import ReplicationRefused
from schemaless_core.replication import following as followed
from schemaless_core.replication.following import LogFollowing
from schemaless_core.replication.forks import are_apart, fork
from schemaless_core.replication.replication import FollowOrder
from tests.backups import buffered, empty, expire
from tests.chaos.actors import wait_until
from tests.damage import execute
from tests.following import FROM, Follower, begun, following, promoted, wait_until_whole
from tests.fscks import row_of
from tests.integration.test_replication import SHARDS, filled, takes_puts
from tests.repairs import doing_at
from tests.stores import ServerEngine, Stores
from tripstore.cli.exits import Exit
from tripstore.cli.replicate.documents import compare_document

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS)


def run_on(standby: Datastore, statement: str, *values: Any) -> None:
    """On the server of its one cluster, which no call of a standby reaches."""
    (cluster,) = standby.clusters.values()
    node = cluster.primary.node
    assert isinstance(node, MySQLNode)
    state = node._names.shard_state

    def run(connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(state=state), values)

    node._sessions.run(run, Deadline(5))


def test_i3_a_leader_that_was_made_anew_is_not_followed(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        stores.fresh(server_engine, shards=SHARDS) as anew,
        empty(stores, server_engine, shards=SHARDS, clusters="b") as standby,
    ):
        job = begun(standby, store)
        with Follower(standby.replication(store), job, "first"):
            wait_until_whole(standby, store)
        filled(anew, 60)
        expire(standby)

        with Follower(standby.replication(anew), job, "second") as second:
            wait_until("it is refused", lambda: second.ended is not None)
        refusals = standby.replication(anew).plan(FollowOrder(FROM)).refusals

        assert isinstance(second.ended, ReplicationRefused)
        assert "another log" in second.ended.message
        assert "two logs" in refusals[0]
        with pytest.raises(ReplicationRefused, match="another log"):
            promoted(standby, anew)


def test_i9_a_datastore_that_leads_is_not_closed_for_one_of_which_it_has_nothing(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        stores.fresh(server_engine, shards=SHARDS) as stranger,
        empty(stores, server_engine, shards=SHARDS, clusters="b") as its,
    ):
        filled(stranger)
        with following(its, stranger):
            wait_until_whole(its, stranger)
        promoted(its, stranger)

        plan = store.replication(its).plan(FollowOrder(FROM))

        assert plan.returns
        assert "two logs" in plan.refusals[0]
        with pytest.raises(ReplicationRefused):
            store.replication(its).begin(plan)
        assert takes_puts(store)


def test_i12_a_copy_that_is_ahead_of_its_log_is_said_and_does_not_lead_by_plan(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        empty(stores, server_engine, shards=SHARDS, clusters="b") as standby,
        patch.object(followed, "AHEAD_SECONDS", 0.2),
    ):
        job = begun(standby, store)
        with Follower(standby.replication(store), job, "first"):
            wait_until_whole(standby, store)
        execute(store, 0, "DELETE FROM {cell} WHERE added_id = 10")
        execute(store, 0, "UPDATE {state} SET next_added_id = 10 WHERE shard = 0")
        expire(standby)

        with Follower(standby.replication(store), job, "second") as second:
            wait_until("it is refused", lambda: second.ended is not None)

        assert isinstance(second.ended, ReplicationRefused)
        assert "has 10 added ids, and its log 9" in second.ended.message
        with pytest.raises(ReplicationRefused):
            promoted(standby, store)
        assert takes_puts(store)


def test_a_job_is_not_gone_on_with_for_another_file_or_rate(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        job = begun(standby, store)
        replication = standby.replication(store)

        same = replication.plan(FollowOrder(FROM))
        file = replication.plan(FollowOrder("/moved.yaml"))
        rate = replication.plan(FollowOrder(FROM, 7.0))

        assert (same.refusals, same.job) == ((), job.id)
        assert f"--cancel {job.id}" in file.refusals[0]
        assert "cells_per_second" in rate.refusals[0]
        replication.jobs.cancel("replicate", job.id)
        assert replication.plan(FollowOrder("/moved.yaml")).refusals == ()
        assert standby.config.datastore in same.remarks[0], "positions name the datastore"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({(1, 1, WHEN)}, {(1, 1, WHEN)}, (0, False)),
        ({(1, 1, WHEN)}, {(1, 1, WHEN), (1000, 8, WHEN)}, (7, False)),
        ({(1, 1, WHEN), (1000, 9, WHEN)}, {(1, 1, WHEN), (1000, 9, WHEN + timedelta(1))}, (8, False)),
        ({(1, 1, WHEN)}, {(1, 1, WHEN + timedelta(1))}, (0, True)),
        (set(), {(1, 1, WHEN)}, (0, False)),
    ],
)
def test_i7_two_that_opened_one_epoch_at_two_times_forked_there(
    ours: set[Any], theirs: set[Any], expected: tuple[int, bool]
) -> None:
    assert (fork(frozenset(ours), frozenset(theirs)), are_apart(frozenset(ours), frozenset(theirs))) == expected


def test_i7_a_position_of_the_epoch_to_which_a_copy_was_cut_is_known(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        promoted(standby, store)
        filled(standby, 8)
        position = standby.get_cells_for_shard(0, 0, 1000).position

        # It is lost before what stands beside its logs was looked at again.
        with patch.object(LogFollowing, "beside", return_value=0), following(store, standby):
            wait_until_whole(store, standby)
        promoted(store, standby, is_forced=True)
        put = filled(store, 8)

        # Of two datacentres both datastores have one name; these are on the same servers.
        seen = store.get_cells_for_shard(0, replace(position, store=store.config.datastore), 1000)
        assert {cell.row_key for cell in seen.cells} == {row for row in put if store.shard_of(row) == 0}


def test_i12_shards_that_the_standby_lost_are_behind_and_not_compared(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        whole = standby.replication(store).compare()
        run_on(standby, "DELETE FROM {state} WHERE shard = 2")
        some = standby.replication(store).compare()
        run_on(standby, "DELETE FROM {state}")

        lags, none = standby.replication(store).lag(), standby.replication(store).compare()

        assert (whole.missing, compare_document(whole).exit) == ((), Exit.FINE)
        assert (some.missing, compare_document(some).exit) == ((2,), Exit.NOT_VERIFIED)
        assert (none.missing, compare_document(none).exit) == ((0, 1, 2, 3), Exit.NOT_VERIFIED)
        assert [(lag.cells, lag.behind) for lag in lags] == [(0, 10)] * SHARDS


def test_i12_what_waits_in_the_buffers_of_the_one_that_leads_is_told(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    buffered(store, 1, NewCell(row_of(store, 1).bytes, b"BASE", 7, b'{"driver":"late"}'))
    with empty(stores, server_engine, shards=SHARDS) as standby, following(standby, store):
        jobs, job = standby.replication(store).jobs, standby.replication(store).record.find().standby.job

        def said() -> dict[str, Any]:
            found = jobs.checkpoints(job).get(0)
            return found if isinstance(found, dict) else {}

        wait_until("it is told", lambda: said().get("buffered") == 1, 60)

        assert datetime.fromisoformat(said()["buffered_since"]) > WHEN


def test_a_shard_that_cannot_be_opened_is_named_with_its_state(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        fenced = "UPDATE {state} SET state = 'RO' WHERE shard = 2"

        fencing = doing_at("replicate.open", lambda: run_on(standby, fenced))
        with fencing, pytest.raises(ReplicationRefused, match="Shard 2 is RO"):
            promoted(standby, store)
        run_on(standby, "UPDATE {state} SET state = 'COMES' WHERE shard = 2")

        assert promoted(standby, store) == 1000


@pytest.mark.parametrize("is_forced", [False, True], ids=["planned", "forced"])
def test_i1_a_standby_that_lacks_the_copy_of_a_shard_does_not_lead(
    store: Datastore, server_engine: ServerEngine, stores: Stores, is_forced: bool
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        begun(standby, store)
        with pytest.raises(ReplicationRefused, match="4 shards have no copy here: 0, 1, 2, 3") as refused:
            promoted(standby, store, is_forced=is_forced)
        assert "replicate start" in str(refused.value.hint)
        assert takes_puts(store)

        with following(standby, store):
            wait_until_whole(standby, store)
        promoted(standby, store, is_forced=is_forced)

        assert takes_puts(standby)
