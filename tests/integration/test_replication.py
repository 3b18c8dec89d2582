"""A standby of real servers: what it has, how it comes to lead, how the one that led comes back (I1, I2, I3, I7)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.cell.stored import NewCell
from schemaless_core.errors import LedElsewhere, ReplicationRefused, StaleEpoch, Unavailable
from schemaless_core.failpoints import FailpointReached
from schemaless_core.replication import steps
from schemaless_core.replication.bringing import Bringing
from schemaless_core.replication.replication import FollowOrder
from tests.backups import buffered, empty, expire, logs_of
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.damage import execute
from tests.following import (
    FROM,
    Follower,
    begun,
    behind,
    copied_logs,
    dying_at,
    following,
    promoted,
    wait_until_whole,
)
from tests.fscks import kinds_in, row_of
from tests.integration.test_moves import purge
from tests.repairs import failing_at
from tests.stores import ServerEngine, Stores

SHARDS = 4


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS)


def filled(store: Datastore, count: int = 40, first: int = 0) -> list[UUID]:
    """Rows in all shards, a cell in each."""
    rows = [row_of(store, n % SHARDS) for n in range(first, first + count)]
    store.put_cells([Cell(row, "BASE", 1, {"driver": f"driver {n % 3}", "ü": "'\\\0"}) for n, row in enumerate(rows)])
    return rows


def takes_puts(store: Datastore) -> bool:
    """Whether a put is acknowledged."""
    try:
        store.using(deadline=2.0).put_cell(row_of(store, 0), "BASE", 1, {})
    except (LedElsewhere, StaleEpoch, Unavailable):
        return False
    return True


def conflicts(store: Datastore) -> int:
    """Cells in its ledger."""
    return sum(len(each) for each in store.replayer().conflicts(10).values() if isinstance(each, list))


def test_i1_i3_a_standby_has_the_log_and_leads_when_it_is_promoted(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
            rows += filled(store)
            wait_until_whole(standby, store)
        assert copied_logs(standby) == logs_of(store)
        with pytest.raises(LedElsewhere):
            standby.put_cell(rows[0], "BASE", 2, {})

        epoch = promoted(standby, store)

        assert epoch == 1000
        for row in rows:
            assert standby.get_cell_latest(row, "BASE") is not None
        assert standby.put_cell(rows[0], "BASE", 2, {}).epoch == epoch
        with pytest.raises(LedElsewhere):
            store.put_cell(rows[0], "BASE", 3, {})

        with following(store, standby):
            wait_until_whole(store, standby)
        assert copied_logs(store) == logs_of(standby)
        assert not store.replication(standby).compare().differs
        assert promoted(store, standby) == 2000
        assert store.put_cell(rows[0], "BASE", 3, {}).epoch == 2000


def test_i1_what_the_old_one_acknowledged_alone_is_brought_when_it_comes_back(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        alone = filled(store)
        assert behind(standby, store) == len(alone)

        promoted(standby, store, is_forced=True)
        there = filled(standby)
        store.put_cell(rows[0], "BASE", 2, {"who": "old"})
        standby.put_cell(rows[0], "BASE", 2, {"who": "new"})

        with following(store, standby):
            wait_until_whole(store, standby)
        assert copied_logs(store) == logs_of(standby)
        for row in (*rows, *alone, *there):
            assert standby.get_cell(row, "BASE", 1) is not None


@pytest.mark.parametrize(
    "point",
    [
        "replicate.read",
        "replicate.cut",
        "replicate.page_written",
        "copies.written",
        "replicate.saved",
    ],
)
def test_i1_i3_a_follower_that_died_is_gone_on_with_by_another_one(
    point: str, store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        job = begun(standby, store)
        with dying_at(point), Follower(standby.replication(store), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        assert isinstance(first.ended, FailpointReached)
        expire(standby)
        filled(store)
        with Follower(standby.replication(store), job, "second"):
            wait_until_whole(standby, store)

        assert copied_logs(standby) == logs_of(store)


@pytest.mark.parametrize("step", [step.name for step in steps.PROMOTE])
def test_i1_i9_a_promotion_that_died_at_a_step_is_gone_on_with(
    step: str, store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        rows += filled(store, 8)
        with failing_at(step), pytest.raises(FailpointReached):
            promoted(standby, store)
        assert (takes_puts(store), takes_puts(standby)) != (True, True)

        promoted(standby, store)

        assert (takes_puts(standby), takes_puts(store)) == (True, False)
        assert all(standby.get_cell(row, "BASE", 1) is not None for row in rows)


@pytest.mark.parametrize("step", [step.name for step in steps.RETURN])
def test_i1_a_return_that_died_at_a_step_is_gone_on_with(
    step: str, store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        rows += filled(store, 8)
        promoted(standby, store, is_forced=True)
        job = begun(store, standby)
        with dying_at(step), Follower(store.replication(standby), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        expire(store)

        with Follower(store.replication(standby), job, "second"):
            wait_until_whole(store, standby)

        assert copied_logs(store) == logs_of(standby)
        assert all(standby.get_cell(row, "BASE", 1) is not None for row in rows)


def test_i1_control_a_return_that_brings_nothing_loses_what_was_acknowledged(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        alone = filled(store, 8)
        promoted(standby, store, is_forced=True)

        with patch.object(Bringing, "bring", return_value=True), following(store, standby):
            wait_until_whole(store, standby)

        assert not all(standby.get_cell(row, "BASE", 1) is not None for row in alone)


def test_i2_a_cell_that_met_another_body_is_in_the_ledger_of_the_one_that_leads(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="ab") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        promoted(standby, store, is_forced=True)
        store.put_cell(rows[0], "BASE", 2, {"who": "old"})
        standby.put_cell(rows[0], "BASE", 2, {"who": "new"})

        with following(store, standby):
            wait_until_whole(store, standby)
        standby.replayer().round()

        assert conflicts(standby) == 1

        assert standby.get_cell(rows[0], "BASE", 2) == Cell(rows[0], "BASE", 2, {"who": "new"})


def test_i7_a_position_of_before_passes_no_cell_after_a_promotion(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        filled(store, 8)
        ahead = store.get_cells_for_shard(0, 0, 1000).position

        promoted(standby, store, is_forced=True)
        put = filled(standby, 8)

        # Of two datacentres both datastores have one name; these are on the same servers.
        seen = standby.get_cells_for_shard(0, replace(ahead, store=standby.config.datastore), 1000)
        assert {cell.row_key for cell in seen.cells} == {row for row in put if standby.shard_of(row) == 0}


def test_i2_i3_what_repair_purged_and_changed_is_so_on_the_standby(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    rows = filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        purge(store, 0, rows[4], None)
        purge(store, 0, rows[8], b'{"driver":"driver 9"}')

        promoted(standby, store)

        assert standby.get_cell(rows[4], "BASE", 1) is None
        assert standby.get_cell(rows[8], "BASE", 1) == Cell(rows[8], "BASE", 1, {"driver": "driver 9"})
        assert kinds_in(standby) == []


def test_i7_triggers_go_on_at_least_once_in_the_standby(server_engine: ServerEngine, stores: Stores) -> None:
    notebook = Notebook()
    with (
        stores.fresh(server_engine, shards=SHARDS, triggers=quick(attempts=1)) as store,
        empty(stores, server_engine, shards=SHARDS, clusters="b", triggers=quick(attempts=1)) as standby,
    ):
        rows = filled(store)
        notebook.failing = lambda cell: cell.row_key == rows[0]
        with working(store, [noting(notebook)]):
            wait_until_caught_up(store, "noted")
        with following(standby, store):
            wait_until_whole(standby, store)
        promoted(standby, store)
        before = len(notebook.cells)
        rows.append(row_of(standby, 0))
        standby.put_cell(rows[-1], "BASE", 1, {})
        with working(standby, [noting(notebook)]):
            wait_until_caught_up(standby, "noted")

        again = [cell.row_key for cell in notebook.cells[before:]]
        assert again == [rows[-1]]
        assert [parked.row_key for parked in standby.triggers.parking.listed("noted", None, 10)] == [rows[0].bytes]


def test_compare_names_the_range_in_which_a_cell_differs(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        same = standby.replication(store).compare()
        execute(store, 2, "UPDATE {cell} SET body = %s WHERE added_id = 3", b"1")

        differs = standby.replication(store).compare()

        assert (same.compared, same.differs) == (40, ())
        assert [(each.shard, each.first) for each in differs.differs] == [(2, 1)]


def test_two_that_promote_at_once_open_one_datastore(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        with ThreadPoolExecutor(2) as threads:
            epochs = [each.result() for each in [threads.submit(promoted, standby, store) for _ in range(2)]]

        assert epochs == [1000, 1000]
        assert (takes_puts(standby), takes_puts(store)) == (True, False)


def test_refusals_name_what_is_in_the_way(store: Datastore, server_engine: ServerEngine, stores: Stores) -> None:
    filled(store)
    other = stores.fresh(server_engine, shards=SHARDS)
    with empty(stores, server_engine, shards=8) as larger:
        leads = other.replication(store).plan(FollowOrder(FROM)).refusals
        shards = larger.replication(store).plan(FollowOrder(FROM)).refusals
        itself = store.replication(store).plan(FollowOrder(FROM)).refusals

    assert "This datastore leads" in leads[0]
    assert "4 shards" in shards[0]
    assert "one control database" in itself[0]
    with pytest.raises(ReplicationRefused, match="no standby"):
        promoted(store, other)


def test_i9_a_mirror_of_postgres_is_not_promoted(server_engine: ServerEngine, stores: Stores) -> None:
    config, own = (stores.config(server_engine, shards=SHARDS) for _ in range(2))
    with Datastore.open(config) as store, Datastore.open(own) as standby:
        store.create_schema(status=ShardStatus.COPY)
        with following(standby, store):
            wait_until_whole(standby, store)

        with pytest.raises(ReplicationRefused, match="Postgres is the authority"):
            promoted(standby, store, is_forced=True)


def test_i5_what_waits_in_a_buffer_is_brought_by_a_promotion_that_is_planned(
    store: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    filled(store)
    with empty(stores, server_engine, shards=SHARDS) as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        row = row_of(store, 1)
        buffered(store, 1, NewCell(row.bytes, b"BASE", 7, b'{"driver":"late"}'))

        promoted(standby, store)

        assert standby.get_cell(row, "BASE", 7) == Cell(row, "BASE", 7, {"driver": "late"})


def test_i1_i9_one_that_cannot_be_reached_is_left_out_by_force_alone(
    server_engine: ServerEngine, stores: Stores
) -> None:
    config, own = (stores.config(server_engine, shards=SHARDS) for _ in range(2))
    proxies = {name: server.proxy() for name, server in stores.primaries(server_engine).items()}
    seen = config | {
        "clusters": {name: {"primary": proxies[name].url} for name in config["clusters"]},
        "deadlines": {"connect_seconds": 1.0},
    }
    with Datastore.open(config) as store, Datastore.open(seen) as there, Datastore.open(own) as standby:
        store.create_schema()
        rows = filled(store)
        with following(standby, there):
            wait_until_whole(standby, there)
            for proxy in proxies.values():
                proxy.refuse()
            silent = [lag.behind for lag in standby.replication(there).lag()]
            with pytest.raises(ReplicationRefused, match="stopped there"):
                promoted(standby, there)
            assert not takes_puts(standby)

            promoted(standby, there, is_forced=True)

        assert silent == [None] * SHARDS
        assert all(standby.get_cell(row, "BASE", 1) is not None for row in rows)
        assert takes_puts(standby)
