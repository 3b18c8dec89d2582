"""Epochs and states: a stale caller is refused by the store itself, learns, and goes on by itself (I9)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore, Position, PositionUnknown, StaleEpoch
from tests.stores import ServerEngine, Stores


@pytest.fixture
def shard_zero(server_engine: ServerEngine, stores: Stores) -> ShardZero:
    return ShardZero(stores.fresh(server_engine, shards=2), stores, server_engine)


class ShardZero:
    """Shard 0 of a datastore, which lives on cluster a, and what a mover or a switch would do to it."""

    def __init__(self, store: Datastore, stores: Stores, engine: ServerEngine) -> None:
        self.store = store
        self.name = store.config.datastore
        self.a, self.b = (cluster.primary for cluster in stores.clusters(engine))
        self.rows = [row for row in (uuid4() for _ in range(400)) if store.shard_of(row) == 0]
        store.put_cells([Cell(row, "BASE", 1, "before") for row in self.rows[:10]])

    def new_row(self) -> UUID:
        return self.rows.pop()

    def set(self, assignments: str) -> None:
        self.a.query(f"UPDATE {self.name}_meta.shard_state SET {assignments} WHERE shard = 0")

    def stored(self) -> int:
        (row,) = self.a.query(f"SELECT COUNT(*) AS n FROM {self.name}_0000.cell")
        return int(str(row["n"]))


def test_a_raised_epoch_is_learned_and_the_put_repeated(shard_zero: ShardZero) -> None:
    shard_zero.set("epoch = 7")

    results = [
        shard_zero.store.put_cell(shard_zero.new_row(), "BASE", 1, "single"),
        *shard_zero.store.put_cells([Cell(shard_zero.new_row(), "BASE", 1, "batch")]),
        shard_zero.store.put_cell(shard_zero.new_row(), "BASE", 1, "first", expect_latest=None),
    ]

    assert [(result.status, result.epoch) for result in results] == [("CREATED", 7)] * 3


def test_a_raised_epoch_is_learned_and_the_read_repeated(shard_zero: ShardZero) -> None:
    shard_zero.set("epoch = 7")
    row = shard_zero.rows[0]

    assert shard_zero.store.get_cell_latest(row, "BASE") == Cell(row, "BASE", 1, "before")
    assert shard_zero.store.get_cells_for_shard(0, 0, 100).position.epoch == 7
    assert shard_zero.store.get_row(row)["BASE"].body == "before"


def test_a_mirror_takes_copiers_and_refuses_owners(shard_zero: ShardZero) -> None:
    shard_zero.set("state = 'COPY', authority_epoch = 4")
    before = shard_zero.stored()
    store = shard_zero.store

    puts: list[Callable[[], object]] = [
        lambda: store.put_cell(shard_zero.new_row(), "BASE", 1, "owner's"),
        lambda: store.put_cell(shard_zero.new_row(), "BASE", 1, "owner's", expect_latest=None),
        lambda: store.as_owner(4).put_cell(shard_zero.new_row(), "BASE", 1, "owner's"),
        lambda: store.as_copier(3).put_cell(shard_zero.new_row(), "BASE", 1, "an old copier's"),
        lambda: store.append_cell(shard_zero.new_row(), "NOTES", "owner's"),
    ]
    for put in puts:
        with pytest.raises(StaleEpoch):
            put()
    assert shard_zero.stored() == before

    assert store.as_copier(4).put_cell(shard_zero.new_row(), "BASE", 1, "copied").status == "CREATED"
    assert store.as_copier(5).put_cells([Cell(shard_zero.new_row(), "BASE", 1, "copied")])[0].status == "CREATED"


def test_an_owner_of_an_old_authority_epoch_neither_writes_nor_reads(shard_zero: ShardZero) -> None:
    shard_zero.set("authority_epoch = 6")
    row, before = shard_zero.rows[0], shard_zero.stored()
    stale, present = shard_zero.store.as_owner(4), shard_zero.store.as_owner(6)

    calls: list[Callable[[], object]] = [
        lambda: stale.put_cell(shard_zero.new_row(), "BASE", 1, "stale"),
        lambda: stale.get_cell_latest(row, "BASE"),
        lambda: stale.get_cells_for_shard(0, 0, 10),
        lambda: stale.get_cells([Cell(row, "BASE", 1, None).key]),
        lambda: stale.scan_rows(0),
    ]
    for call in calls:
        with pytest.raises(StaleEpoch):
            call()

    assert shard_zero.stored() == before
    assert present.get_cell_latest(row, "BASE") is not None
    assert present.put_cell(shard_zero.new_row(), "BASE", 1, "present").status == "CREATED"
    # Without a facade above, the store itself says who is the authority.
    assert shard_zero.store.put_cell(shard_zero.new_row(), "BASE", 1, "plain").status == "CREATED"


def test_an_owner_of_the_authority_follows_its_shard(shard_zero: ShardZero) -> None:
    """Where a shard is, and who is the authority, are two questions: only the first is asked of places."""
    owner = shard_zero.store.as_owner(0)
    shard_zero.set("epoch = 7")

    assert owner.put_cell(shard_zero.new_row(), "BASE", 1, "followed").epoch == 7
    assert owner.get_cell_latest(shard_zero.rows[0], "BASE") is not None

    # A promoted server may also be another authority's.
    shard_zero.set("epoch = 8, authority_epoch = 2")
    with pytest.raises(StaleEpoch) as refused:
        owner.put_cell(shard_zero.new_row(), "BASE", 1, "refused")
    assert refused.value.is_of_authority
    assert shard_zero.store.as_owner(2).put_cell(shard_zero.new_row(), "BASE", 1, "taken").epoch == 8


def test_an_owner_of_the_authority_waits_for_a_shard_that_is_handed_over(shard_zero: ShardZero) -> None:
    shard_zero.set("state = 'RO', epoch = 2")
    reopen = threading.Timer(0.3, lambda: shard_zero.set("state = 'RW', epoch = 3"))
    reopen.start()

    result = shard_zero.store.as_owner(0).put_cell(shard_zero.new_row(), "BASE", 1, "patient")

    reopen.join()
    assert (result.status, result.epoch) == ("CREATED", 3)


def test_a_handed_over_shard_is_waited_for(shard_zero: ShardZero) -> None:
    shard_zero.set("state = 'RO', epoch = 2")
    reopen = threading.Timer(0.3, lambda: shard_zero.set("state = 'RW', epoch = 3"))
    reopen.start()

    result = shard_zero.store.put_cell(shard_zero.new_row(), "BASE", 1, "patient")

    reopen.join()
    assert (result.status, result.epoch) == ("CREATED", 3)


def test_a_copier_writes_nothing_to_a_shard_that_is_handed_over(shard_zero: ShardZero) -> None:
    """Its counter has been read by the mover: what is put now would be left behind (I1, I9)."""
    shard_zero.set("state = 'RO'")
    copier = shard_zero.store.as_copier().using(deadline=0.3)

    with pytest.raises(StaleEpoch, match="RO and takes no writes"):
        copier.put_cell(shard_zero.new_row(), "BASE", 1, "refused")

    assert shard_zero.stored() == 10


def test_a_shard_that_stays_closed_refuses_within_the_deadline(shard_zero: ShardZero) -> None:
    shard_zero.set("state = 'RO', epoch = 2")

    with pytest.raises(StaleEpoch, match="RO"):
        shard_zero.store.using(deadline=0.3).put_cell(shard_zero.new_row(), "BASE", 1, "refused")


def test_a_moved_shard_is_found_on_its_new_cluster(shard_zero: ShardZero) -> None:
    """What a mover leaves behind: MOVED on the old cluster, the same log and a higher epoch on the new one."""
    a, b, name = shard_zero.a, shard_zero.b, shard_zero.name
    shard_zero.set("state = 'MOVED', epoch = 2")
    b.query(f"CREATE DATABASE {name}_0000")
    (made,) = a.query(f"SHOW CREATE TABLE {name}_0000.cell")
    b.query(
        str(made["Create Table"]).replace("CREATE TABLE `cell`", f"CREATE TABLE {name}_0000.cell").replace("%", "%%")
    )
    for row in a.query(f"SELECT added_id, HEX(row_key) AS k, body, created_at FROM {name}_0000.cell"):
        values = (row["added_id"], row["k"], row["body"], row["created_at"])
        b.query(f"INSERT INTO {name}_0000.cell VALUES (%s, UNHEX(%s), 'BASE', 1, %s, %s)", *values)
    b.query(f"INSERT INTO {name}_meta.shard_state VALUES (0, 3, 0, 'RW', 11, UTC_TIMESTAMP(6), 0)")
    b.query(f"INSERT INTO {name}_meta.shard_epoch VALUES (0, 3, 11, UTC_TIMESTAMP(6), 'moved')")

    result = shard_zero.store.put_cell(shard_zero.new_row(), "BASE", 1, "after the move")
    page = shard_zero.store.get_cells_for_shard(0, 0, 100)

    assert (result.epoch, result.added_id) == (3, 11)
    assert [cell.added_id for cell in page.cells] == list(range(1, 12))


def test_a_position_from_before_a_promotion_resumes_at_the_fork(shard_zero: ShardZero) -> None:
    """Ids above the fork were given again by the promoted server: skipping them would lose cells."""
    store = shard_zero.store
    position = store.get_cells_for_shard(0, 0, 10).position
    shard_zero.set("epoch = 2")
    shard_zero.a.query(f"INSERT INTO {shard_zero.name}_meta.shard_epoch VALUES (0, 2, 8, UTC_TIMESTAMP(6), 'promoted')")

    page = store.get_cells_for_shard(0, position, 100)

    assert position == Position(shard_zero.name, 1, 10)
    assert [cell.added_id for cell in page.cells] == [8, 9, 10]
    assert page.position == Position(shard_zero.name, 2, 10)
    early = store.get_cells_for_shard(0, Position(shard_zero.name, 1, 3), 2)
    assert [cell.added_id for cell in early.cells] == [4, 5]


def test_a_position_of_an_epoch_that_never_was_is_refused(shard_zero: ShardZero) -> None:
    store, history = shard_zero.store, f"{shard_zero.name}_meta.shard_epoch"
    shard_zero.set("epoch = 5")
    shard_zero.a.query(f"INSERT INTO {history} VALUES (0, 5, 8, UTC_TIMESTAMP(6), 'promoted')")

    for epoch in (3, 9):
        with pytest.raises(PositionUnknown, match=f"no position 3 of epoch {epoch}: its log ends at 10 in epoch 5"):
            store.get_cells_for_shard(0, Position(shard_zero.name, epoch, 3), 10)

    legacy = store.get_cells_for_shard(0, Position(shard_zero.name, 0, 3), 100)  # the log of Postgres: all is new
    assert [cell.added_id for cell in legacy.cells] == list(range(1, 11))


def test_a_position_that_only_a_replica_does_not_know_yet_is_an_empty_page(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = stores.replicated.fresh(server_engine, shards=1)
    behind = store.using(read="replica")
    with stores.replicated.not_applying(server_engine):
        store.put_cell(uuid4(), "BASE", 1, "new")
        position = store.get_cells_for_shard(0, 0, 1).position

        page = behind.get_cells_for_shard(0, position, 10)

        assert (page.cells, page.next_location) == ([], 1)
        with pytest.raises(PositionUnknown):
            behind.get_cells_for_shard(0, replace(position, added_id=2), 10)


def test_cells_are_read_and_written_without_the_control_database(server_engine: ServerEngine, stores: Stores) -> None:
    config: dict[str, Any] = stores.config(server_engine, shards=4)
    with Datastore.open(config) as first:
        first.create_schema()
        first.put_cells([Cell(UUID(int=n), "BASE", 1, n) for n in range(20)])
    config["control"] = "mysql://root:wrong@127.0.0.1:1"  # no server listens there

    with Datastore.open(config) as later:
        assert later.put_cell(uuid4(), "BASE", 1, "x").status == "CREATED"
        assert later.get_cell(UUID(int=7), "BASE", 1) == Cell(UUID(int=7), "BASE", 1, 7)
