"""What copies cells brings none of them back that was purged; each with the control that breaks the rule (I2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.backups.backups import RestoreOrder
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.manifest import NAME
from schemaless_core.backups.purged import KnownPurges, PurgedKeys
from schemaless_core.cell.stored import NewCell
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.copies import tables
from schemaless_core.errors import BackupRefused
from schemaless_core.moves import steps
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.steps import Moved
from schemaless_core.urls import parse_node_url
from tests.backups import backed_up, begun, buffered, empty, restore_begun, restored
from tests.damage import lose
from tests.fscks import DEEP, kinds_in, mend, row_of
from tests.promoted import promotable
from tests.purges import (
    INDEX,
    SECRET,
    SHARDS,
    bodies_of_lines,
    check_gone,
    filled,
    is_back,
    looking_at_no_key,
    person,
    purge,
)
from tests.stores import ServerEngine, Stores


@pytest.fixture
def served(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX]) as fresh:
        yield fresh


# Moves.


def test_i2_purged_keys_go_with_a_shard_and_come_back_with_it(served: Datastore) -> None:
    before, there = filled(served), filled(served)
    purge(served, before)
    go(served, 0, "b")
    check_gone(served, before)
    purge(served, there)

    go(served, 0, "a")

    check_gone(served, before)
    check_gone(served, there)
    assert bodies_of_lines(served) == []
    assert kinds_in(served, DEEP) == []


def test_i2_what_is_purged_while_its_shard_is_moved_does_not_arrive(
    served: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages that have it were copied already."""
    monkeypatch.setattr(steps, "NEAR_CELLS", 0)  # else the flip copies all of so short a log
    row_key = filled(served)
    mover = served.moves().mover(ShardOrder(0, "b"), MoveOrder((0,), "b", hold_seconds=5.0))
    purged = list[Job]()

    def hear(_step: object) -> None:
        if mover.cells and not mover.is_closed and not purged:
            assert served.get_row(row_key), "it has not gone yet"
            assert states(served) == {"a": "RW", "b": "MOVED"}
            purged.append(purge(served, row_key))

    assert isinstance(mover.run(hear), Moved)

    assert purged
    check_gone(served, row_key)
    assert kinds_in(served, DEEP) == []


def test_control_a_shard_that_goes_without_its_purged_keys_takes_the_row_again(served: Datastore) -> None:
    row_key = filled(served)
    purge(served, row_key)
    with patch.dict(tables.TABLES):
        del tables.TABLES["purged_key"]
        go(served, 0, "b")

    served.put_cells(person(row_key))

    assert is_back(served, row_key)


def test_i2_lines_that_were_copied_with_bodies_are_stripped_with_the_others(served: Datastore) -> None:
    """The shard goes between the deletion and the end of the purge, and its lines with it."""
    row_key = filled(served)
    purges = served.purges
    purges.rows([row_key])
    go(served, 0, "b")
    assert bodies_of_lines(served) != []

    purges.finish_rows([row_key])

    assert bodies_of_lines(served) == []
    go(served, 0, "a")
    assert bodies_of_lines(served) == []


def test_i2_a_copy_that_a_move_has_left_has_nothing_of_a_purged_row(
    served: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    row_key = filled(served)
    go(served, 0, "b")

    def left() -> int:
        server = stores.clusters(server_engine)[0].primary
        (found,) = server.query(
            f"SELECT COUNT(*) AS n FROM {served.config.datastore}_0000.cell WHERE row_key = %s", row_key.bytes
        )
        return int(str(found["n"]))

    assert left() == 4, "control: the copy has it"

    purge(served, row_key)

    assert left() == 0
    go(served, 0, "a")
    check_gone(served, row_key)
    assert kinds_in(served, DEEP) == []


def states(store: Datastore) -> dict[str, str]:
    """Of the shard, as its two clusters say."""
    found = {name: cluster.ask(lambda node: node.heads([0], Deadline(5))) for name, cluster in store.clusters.items()}
    return {name: heads[0].state.status for name, heads in found.items()}


def go(store: Datastore, shard: int, to: str) -> None:
    order = MoveOrder((shard,), to, hold_seconds=5.0)
    assert isinstance(store.moves().mover(ShardOrder(shard, to), order).run(lambda step: None), Moved)


# Backups.


def restored_row(stores: Stores, engine: ServerEngine, folder: Path, row_key: UUID, name: str) -> bool:
    """Whether a restore brings a row back, or takes it."""
    with empty(stores, engine, shards=SHARDS, clusters="a", indexes=[INDEX]) as copy:
        restored(copy, folder, name=name)
        if is_back(copy, row_key):
            return True
        check_gone(copy, row_key)
        assert kinds_in(copy) == []
        return False


def test_i2_no_backup_brings_back_what_a_later_one_knows_to_be_purged(
    served: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    row_key = filled(served)
    full = backed_up(served, tmp_path)
    purge(served, row_key)
    assert restored_row(stores, server_engine, tmp_path, row_key, "last"), "control: no backup knows of the purge yet"
    served.put_cell(row_of(served, 0), "BASE", 1, "after")
    increment = backed_up(served, tmp_path)
    assert increment.base == full.backup

    for name in ("last", full.backup):
        assert not restored_row(stores, server_engine, tmp_path, row_key, name)

    with patch.object(KnownPurges, "of", lambda _known, _shard: PurgedKeys([])):
        assert restored_row(stores, server_engine, tmp_path, row_key, full.backup), "control: the keys are not read"


@pytest.mark.parametrize("damage", ["manifest", "cut", "flipped"])
def test_i2_a_later_backup_that_cannot_be_read_has_the_restore_refused(
    served: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path, damage: str
) -> None:
    row_key = filled(served)
    first = backed_up(served, tmp_path)
    purge(served, row_key)
    later = backed_up(served, tmp_path)
    file = later.shards[served.shard_of(row_key)].beside.name
    path = tmp_path / (f"{later.backup}/{NAME}" if damage == "manifest" else file)
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "cut" else bytes([*data[:-1], data[-1] ^ 1]))
    name = str(path.relative_to(tmp_path))

    with empty(stores, server_engine, shards=SHARDS, clusters="a", indexes=[INDEX]) as copy:
        backups = copy.backups()
        plan = backups.plan_restore(RestoreOrder(str(tmp_path), first.backup))
        if damage == "flipped":  # only who reads it knows
            assert plan.refusals == ()
            with pytest.raises(BackupRefused, match="may know of rows that were purged"):
                restored(copy, tmp_path, name=first.backup)
        else:
            assert [each for each in plan.refusals if each.startswith(name) and "--despite-lost-purges" in each]
            with pytest.raises(BackupRefused, match="purged would come"):
                backups.begin_restore(plan)

    with empty(stores, server_engine, shards=SHARDS, clusters="a", indexes=[INDEX]) as copy:
        backups = copy.backups()
        plan = backups.plan_restore(RestoreOrder(str(tmp_path), first.backup, despite_lost_purges=True))
        job = backups.begin_restore(plan)
        assert backups.restore_runner(job, "test").run() is JobState.DONE
        assert is_back(copy, row_key), "as the operator accepted"


def test_i2_a_backup_that_ended_after_a_purge_tells_one_that_was_begun_later(
    served: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """Its name is the earlier one: it was paused, and read the shards last."""
    row_key = filled(served)
    paused = begun(served, tmp_path)
    later = backed_up(served, tmp_path)
    purge(served, row_key)
    assert restored_row(stores, server_engine, tmp_path, row_key, "last"), "control: no backup knows of the purge yet"

    assert served.backups().runner(paused, "test").run() is JobState.DONE

    for name in ("last", later.backup):
        assert not restored_row(stores, server_engine, tmp_path, row_key, name)


def test_i2_what_waited_of_a_purged_row_waits_in_no_datastore_that_is_restored(
    served: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """Two bodies under one key: one would wait again, and the other one be in the ledger of conflicts for ever."""
    row_key = filled(served)
    waits = NewCell(row_key.bytes, b"BASE", 9, b'"waits"')
    buffered(served, 0, waits)
    buffered(served, 0, waits._replace(body=b'"waits too"'), in_own_cluster=True)
    first = backed_up(served, tmp_path)
    assert kept_bodies(stores, server_engine, tmp_path, first.backup) == {b'"waits"', b'"waits too"'}, "control"
    purge(served, row_key)
    backed_up(served, tmp_path)

    assert kept_bodies(stores, server_engine, tmp_path, first.backup) == set()


def kept_bodies(stores: Stores, engine: ServerEngine, folder: Path, name: str) -> set[bytes]:
    """What is in the buffer and in the ledger of conflicts of a datastore that is restored."""
    with empty(stores, engine, shards=SHARDS, clusters="a", indexes=[INDEX]) as copy:
        restored(copy, folder, name=name)
        buffers = copy.clusters["a"].primary.node.buffers
        waiting = {each.cell.body for each in buffers.waiting(None, 9, 1 << 20, Deadline(20))}
        return waiting | {each.waiting.cell.body for each in buffers.conflicts(9, Deadline(20))}


def test_a_restore_reads_the_manifest_of_each_backup_once_however_many_shards_there_are(
    served: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    backups = [backed_up(served, tmp_path) for _ in range(3)]
    read, read_file = list[str](), LocalFolder.read

    def reads(folder: LocalFolder, name: str) -> bytes:
        read.append(name)
        return read_file(folder, name)

    with empty(stores, server_engine, shards=SHARDS, clusters="a") as copy:
        runner = copy.backups().restore_runner(restore_begun(copy, tmp_path, name=backups[0].backup), "test")
        with patch.object(LocalFolder, "read", reads):
            assert runner.run() is JobState.DONE

    assert sorted(each for each in read if each.endswith(NAME)) == [f"{each.backup}/{NAME}" for each in backups]


def test_a_full_backup_after_a_purge_has_nothing_of_the_row(served: Datastore, tmp_path: Path) -> None:
    row_key = filled(served)
    purge(served, row_key)
    made = backed_up(served, tmp_path)
    assert made.cells == 3


# Buffers.


def test_i5_cells_that_wait_for_a_purged_row_are_deleted_and_later_ones_dropped(served: Datastore) -> None:
    row_key = filled(served)
    waits = NewCell(row_key.bytes, b"BASE", 9, SECRET)
    buffered(served, 0, waits)
    assert served.purges.count_rows([row_key]).waiting == 1

    purge(served, row_key)

    assert served.replayer().round().left == ()
    buffered(served, 0, waits)
    assert served.replayer().round().left == ("b",)
    check_gone(served, row_key)
    assert kinds_in(served) == []


def test_control_a_replayer_whose_puts_look_at_no_key_brings_a_row_back(served: Datastore) -> None:
    row_key = filled(served)
    purge(served, row_key)
    buffered(served, 0, NewCell(row_key.bytes, b"BASE", 9, b'"back"'))

    with looking_at_no_key():
        served.replayer().round()

    assert is_back(served, row_key)


# What mends logs.


def test_i3_a_hole_of_a_purged_cell_is_closed_and_not_filled(server_engine: ServerEngine, stores: Stores) -> None:
    """A replica has the cell that the primary lost; meanwhile its row was purged."""
    with stores.replicated.fresh(server_engine, shards=SHARDS) as store:
        row_key = row_of(store, 0)
        cell = Cell(row_key, "BASE", 1, "of a replica")
        store.put_cells([cell, Cell(row_of(store, 0), "BASE", 1, "next")])
        stores.replicated.wait_for_replicas(server_engine)
        with stores.replicated.not_applying(server_engine):
            lose(store, cell)
            purge(store, row_key)
            mend(store)

        assert not is_back(store, row_key)
        assert kinds_in(store) == []


# Salvage.


@pytest.mark.parametrize("breaks", [False, True], ids=["salvage", "control: no key is looked at"])
def test_i2_salvage_brings_back_nothing_of_a_purged_row(
    server_engine: ServerEngine, tmp_path: Path, breaks: bool
) -> None:
    """The old primary alone has a version of the row, and the row was purged at the new one."""
    with promotable(server_engine, tmp_path / "control", replicas=1, shards=SHARDS) as made:
        row_key = next(row for row in (row_of(made.store, n % SHARDS) for n in range(99)) if of_a(made.store, row))
        made.store.put_cells(person(row_key))
        made.cluster.wait_for_replicas()
        made.replica().query("STOP REPLICA IO_THREAD")
        made.store.put_cell(row_key, "BASE", 4, "on the old primary alone")
        made.old.kill()
        made.promote(made.order(dead=(made.old,)))
        made.old.start()
        purge(made.store, row_key)
        salvage = made.store.promotions.salvage("a", parse_node_url("old", made.old.url))

        if breaks:
            with looking_at_no_key():
                salvage.run(lambda done, total: None)
            assert is_back(made.store, row_key)
            return
        found = salvage.run(lambda done, total: None)

        assert (found.salvaged, found.conflicts) == (0, 0)
        check_gone(made.store, row_key)


def of_a(store: Datastore, row_key: UUID) -> bool:
    shard = store.shard_of(row_key)
    return any(each == shard and at.cluster == "a" for each, at in store.schema.plan().topology)
