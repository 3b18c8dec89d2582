"""What was purged stays away in a second datacentre: in the copy, after a promotion, and when the old one returns."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from schemaless_core import CellPurged, Datastore
from schemaless_core.failpoints import FailpointReached
from schemaless_core.purging.carried import CarriedPurges
from tests.backups import empty, expire, logs_of
from tests.chaos.actors import wait_until
from tests.following import Follower, begun, copied_logs, dying_at, following, promoted, wait_until_whole
from tests.purges import SHARDS, check_gone, filled, is_back, looking_at_no_key, purge
from tests.stores import ServerEngine, Stores


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS)


def test_i12_a_row_that_was_purged_where_it_leads_is_gone_from_the_standby_too(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    row_key = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
            purge(store, row_key)
            wait_until("the copy is as it is", lambda: copied_logs(standby) == logs_of(store), 120)

        promoted(standby, store)

        check_gone(standby, row_key)


@pytest.mark.parametrize("is_looked_at", [True, False], ids=["looked at", "control"])
def test_i12_what_the_old_one_brings_back_is_not_what_was_purged_meanwhile(
    store: Datastore, server_engine: ServerEngine, stores: Stores, is_looked_at: bool
) -> None:
    """It acknowledged another version of the row alone, and the row was purged where it leads now."""
    row_key = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        store.put_cell(row_key, "BASE", 9, {"driver": "driver 3"})
        promoted(standby, store, is_forced=True)
        purge(standby, row_key)

        if is_looked_at:
            with following(store, standby):
                wait_until_whole(store, standby)
                wait_until("the copy is as it is", lambda: copied_logs(store) == logs_of(standby), 120)
            check_gone(standby, row_key)
        else:
            with looking_at_no_key(), following(store, standby):
                wait_until("it is back", lambda: is_back(standby, row_key), 120)


@pytest.mark.parametrize("is_carried", [True, False], ids=["carried", "control"])
def test_i1_i2_a_purge_that_the_old_one_alone_had_is_done_again_where_it_leads_now(
    store: Datastore, server_engine: ServerEngine, stores: Stores, is_carried: bool
) -> None:
    """A purge gives no added id, so the logs of the two end alike."""
    row_key = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        purge(store, row_key)
        promoted(standby, store, is_forced=True)
        assert is_back(standby, row_key), "control: it knows of no purge"

        if is_carried:
            with following(store, standby):
                wait_until_whole(store, standby)
                wait_until("the copy is as it is", lambda: copied_logs(store) == logs_of(standby), 120)
            check_gone(standby, row_key)
        else:
            with patch.object(CarriedPurges, "carry", lambda its, forks: 0), following(store, standby):
                wait_until_whole(store, standby)
            assert is_back(standby, row_key)


@pytest.mark.parametrize(
    "point", ["purge.kept", "mends.done", "carried.rows", "purge.before_erase", "carried.finished"]
)
def test_i1_i2_a_return_that_died_while_it_purged_is_gone_on_with(
    store: Datastore, server_engine: ServerEngine, stores: Stores, point: str
) -> None:
    row_key = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        purge(store, row_key)
        promoted(standby, store, is_forced=True)
        job = begun(store, standby)
        with dying_at(point), Follower(store.replication(standby), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        assert isinstance(first.ended, FailpointReached)
        expire(store)

        with Follower(store.replication(standby), job, "second"):
            wait_until_whole(store, standby)

        check_gone(standby, row_key)


def test_i12_a_row_that_was_purged_before_there_was_a_standby_takes_no_put_there(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    """The guard of its shard comes along with the copy."""
    row_key = filled(store)
    purge(store, row_key)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
            wait_until("the copy is as it is", lambda: copied_logs(standby) == logs_of(store), 120)
        promoted(standby, store)

        with pytest.raises(CellPurged):
            standby.put_cell(row_key, "BASE", 1, {})
        check_gone(standby, row_key)
