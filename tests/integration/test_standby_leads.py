"""Which one may lead, of several datastores on real servers: two standbys, and one that has to lead again (I1, I9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from schemaless_core import Datastore
from schemaless_core.errors import ReplicationRefused
from schemaless_core.failpoints import FailpointReached
from schemaless_core.promotion.ports import SILENT, PromotionOrder
from schemaless_core.replication import record
from schemaless_core.replication.bringing import Bringing
from schemaless_core.replication.ports import LeadAnswer, StandbyState
from schemaless_core.replication.record import Given, StandbyRecord
from schemaless_core.replication.replicas import OwnReplicas
from schemaless_core.replication.replication import FollowOrder
from tests.backups import empty, expire, logs_of
from tests.chaos.actors import wait_until
from tests.following import FROM, Follower, begun, copied_logs, dying_at, following, promoted, wait_until_whole
from tests.integration.test_replication import SHARDS, filled, takes_puts
from tests.promoted import DEADLINES
from tests.repairs import doing_at, failing_at
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import REPLICATION_USER
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS)


def state_of(store: Datastore) -> StandbyState:
    return StandbyRecord(store.control, SHARDS).find().standby.state


def test_i9_of_two_standbys_the_one_that_is_not_named_does_not_lead(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        empty(stores, server_engine, shards=SHARDS, clusters="b") as second,
        empty(stores, server_engine, shards=SHARDS, clusters="ab") as third,
    ):
        for standby in (second, third):
            with following(standby, store):
                wait_until_whole(standby, store)
        promoted(second, store)
        put = filled(second, 8)

        with pytest.raises(ReplicationRefused, match="gave the lead to replicate-"):
            promoted(third, store)

        assert (takes_puts(second), takes_puts(third), takes_puts(store)) == (True, False, False)
        assert state_of(third) is StandbyState.FOLLOWS
        with following(third, second):
            wait_until_whole(third, second)
        assert copied_logs(third) == logs_of(second)
        promoted(third, second)
        assert all(third.get_cell(row, "BASE", 1) is not None for row in put)


def test_i9_one_that_was_about_to_lead_follows_again_where_the_lead_was_given_meanwhile(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        empty(stores, server_engine, shards=SHARDS, clusters="b") as second,
        empty(stores, server_engine, shards=SHARDS, clusters="ab") as third,
    ):
        for standby in (second, third):
            with following(standby, store):
                wait_until_whole(standby, store)
        with failing_at("replicate.give"), pytest.raises(FailpointReached):
            promoted(third, store)
        promoted(second, store)
        assert state_of(third) is StandbyState.CLOSING

        with failing_at("replicate.back"), pytest.raises(FailpointReached):
            promoted(third, store)
        with pytest.raises(ReplicationRefused, match="gave the lead to replicate-"):
            promoted(third, store)

        assert state_of(third) is StandbyState.FOLLOWS
        assert (takes_puts(second), takes_puts(third)) == (True, False)


def test_i9_control_without_the_name_of_the_taker_two_standbys_lead(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with (
        empty(stores, server_engine, shards=SHARDS, clusters="b") as second,
        empty(stores, server_engine, shards=SHARDS, clusters="ab") as third,
    ):
        for standby in (second, third):
            with following(standby, store):
                wait_until_whole(standby, store)
        promoted(second, store)

        with patch.object(record.StandbyRecord, "lead_for", return_value=Given(LeadAnswer.GIVEN)):
            promoted(third, store)

        assert (takes_puts(second), takes_puts(third)) == (True, True)


@contextmanager
def with_replica(engine: ServerEngine, folder: Path) -> Iterator[tuple[dict[str, Any], Datastore, LocalCluster]]:
    """A datastore without shards, of one cluster that has servers of its own, and a replica."""
    with LocalServers() as servers:
        cluster = servers.cluster(engine, "a", replicas=1)
        document: dict[str, Any] = {
            "datastore": "trips",
            "shards": SHARDS,
            "clusters": {"a": {"primary": cluster.primary.url, "replicas": [cluster.replicas[0].url]}},
            "control": f"sqlite:///{folder / 'standby.db'}",
            "replication": {"user": REPLICATION_USER, "password": cluster.primary.password},
            "deadlines": DEADLINES,
        }
        with Datastore.open(document) as standby:
            yield document, standby, cluster


def promote_replica(standby: Datastore, cluster: LocalCluster) -> None:
    """Its primary dies for good."""
    old = cluster.primary
    old.kill()
    order = PromotionOrder("", (f"mysql://root@127.0.0.1:{old.port}",))
    standby.promotions.promoter("a").promote(order)


def test_i1_a_standby_whose_primary_is_lost_before_its_replica_has_heard_leads_on_the_replica(
    store: Datastore, server_engine: ServerEngine, tmp_path: Path
) -> None:
    rows = filled(store)
    with with_replica(server_engine, tmp_path) as (document, standby, cluster):
        with following(standby, store):
            wait_until_whole(standby, store)
        cluster.wait_for_replicas()

        def stop_replica() -> None:
            cluster.wait_for_replicas()
            cluster.replicas[0].query("STOP REPLICA IO_THREAD")

        briefly = patch.dict(OwnReplicas.__init__.__kwdefaults__ or {}, wait_seconds=0.5)
        with (
            briefly,
            doing_at("replicate.decide", stop_replica),
            pytest.raises(ReplicationRefused, match="replica lacks"),
        ):
            promoted(standby, store)
        assert state_of(standby) is StandbyState.OPENING, "it is not said to lead while a replica knows of copies alone"
        promote_replica(standby, cluster)
        assert not takes_puts(standby)

        # Nothing waits for a server that is no more in the configuration.
        without = document | {"clusters": {"a": {"primary": cluster.replicas[0].url}}}
        with Datastore.open(without) as alone:
            promoted(alone, store)

            assert takes_puts(alone)
            assert all(alone.get_cell(row, "BASE", 1) is not None for row in rows)
            assert state_of(alone) is StandbyState.LEADS


@pytest.mark.parametrize("step", ["replicate.close", "replicate.rest", "replicate.decide"])
def test_i1_one_that_gave_the_lead_away_leads_again_where_the_taker_is_lost(
    step: str, store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        rows += filled(store, 8)
        with failing_at(step), pytest.raises(FailpointReached):
            promoted(standby, store)
        with Datastore(store.config) as anew:
            assert not takes_puts(anew)
        with pytest.raises(ReplicationRefused, match="is no standby"):
            promoted(store, store)

        assert promoted(store, store, is_forced=True) == 2000

        assert takes_puts(store)
        assert all(store.get_cell(row, "BASE", 1) is not None for row in rows)
        # The one that was to take it is back, and is not given it at an epoch of before.
        with pytest.raises(ReplicationRefused, match="leads at epoch 2000"):
            promoted(standby, store)
        with following(standby, store):
            wait_until_whole(standby, store)
        assert copied_logs(standby) == logs_of(store)
        assert promoted(standby, store) == 3000


@pytest.mark.parametrize("point", ["replicate.own_closed", "replicate.claimed", "replicate.arrive", "replicate.open"])
def test_i1_i9_leading_again_is_gone_on_with_where_it_died(
    point: str, store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        with failing_at("replicate.close"), pytest.raises(FailpointReached):
            promoted(standby, store)
        with dying_at(point), pytest.raises(FailpointReached):
            promoted(store, store, is_forced=True)

        promoted(store, store)

        assert takes_puts(store)
        assert all(store.get_cell(row, "BASE", 1) is not None for row in rows)


def test_i1_one_that_brings_what_it_alone_has_leads_again_where_the_other_is_lost(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        alone = filled(store, 8)
        promoted(standby, store, is_forced=True)
        job = begun(store, standby)
        with dying_at("replicate.bring"), Follower(store.replication(standby), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        with pytest.raises(ReplicationRefused, match="has not brought all"):
            promoted(store, standby)
        expire(store)

        # What brings goes on, and hears nothing: it must not cut what is here alone.
        lost = patch.object(Bringing, "bring", return_value=SILENT)
        with lost, Follower(store.replication(standby), job, "second") as second:
            promoted(store, standby, is_forced=True)
            wait_until("it follows no more", lambda: second.ended is not None)

        assert takes_puts(store)
        assert all(store.get_cell(row, "BASE", 1) is not None for row in alone)


def test_i1_i9_a_return_whose_copies_no_job_has_yet_leads_by_force(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        promoted(standby, store)
        job = begun(store, standby)
        with dying_at("replicate.followed"), Follower(store.replication(standby), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        assert state_of(store) is StandbyState.FOLLOWS

        promoted(store, standby, is_forced=True)

        assert takes_puts(store)
        assert all(store.get_cell(row, "BASE", 1) is not None for row in rows)


@pytest.mark.parametrize("point", ["replicate.decide", "replicate.arrive", "replicate.open", "replicate.end"])
def test_i9_one_that_is_about_to_lead_does_not_come_back_before_it_does(
    store: Datastore, server_engine: ServerEngine, stores: Stores, point: str
) -> None:
    """It would be closed by its return, and opened by the promotion that goes on: as the copy of another one."""
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as second:
        with following(second, store):
            wait_until_whole(second, store)
        promoted(second, store)
        with failing_at(point), pytest.raises(FailpointReached):
            promoted(store, second, is_forced=True)

        refused = store.replication(second).plan(FollowOrder(FROM)).refusals

        assert any("about to lead" in each for each in refused), refused
        assert promoted(store, second, is_forced=True) == 2000
        refused = store.replication(second).plan(FollowOrder(FROM)).refusals
        assert any("has not taken the lead from it" in each for each in refused), refused
        with following(second, store):
            wait_until_whole(second, store)
        assert (takes_puts(store), takes_puts(second)) == (True, False)
