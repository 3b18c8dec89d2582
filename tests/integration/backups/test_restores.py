"""Restores on real servers: killed, given up, two at once, and how their shards open (I1, I9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from schemaless_core import Cell, Datastore, PositionUnknown
from schemaless_core.backups.backups import RestoreOrder
from schemaless_core.backups.decision import RestoreDecision
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.kept import find_backup
from schemaless_core.control.documents import put_within
from schemaless_core.control.jobs.records import JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import BackupRefused, TopologyConflict
from schemaless_core.failpoints import FailpointReached
from schemaless_core.servers.restores import DOCUMENT
from schemaless_core.servers.topologies import Topologies
from tests.backups import (
    SHARDS,
    WAITING,
    backed_up,
    begun,
    buffered,
    empty,
    expire,
    filled,
    logs_of,
    restore_begun,
    restored,
)
from tests.damage import execute
from tests.fscks import row_of
from tests.integration.test_moves import moved
from tests.repairs import doing_at, failing_at
from tests.stores import ServerEngine, Stores


def test_i1_a_conflict_is_in_the_ledger_again_and_equal_cells_are_none(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    row = row_of(store, 0)
    store.put_cell(row, "BASE", 7, "another body")
    waits = WAITING._replace(row_key=row.bytes)
    buffered(store, 0, waits)
    job = begun(store, tmp_path)

    with doing_at("backup.buffers_read", lambda: store.replayer().round()):  # it is in both files
        assert store.backups().runner(job, "test").run() is JobState.DONE

    assert find_backup(LocalFolder(str(tmp_path)), "last").conflicts is not None
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restore = restored(copy, tmp_path)
        assert copy.backups().jobs.findings(restore.id) == []
        copy.replayer().round()
        (conflict,) = copy.clusters["a"].primary.node.buffers.conflicts(10, Deadline(20))
        assert (conflict.waiting.cell, conflict.stored) == (waits, b'"another body"')


def test_i1_a_second_body_that_waited_under_a_key_is_in_the_ledger_wherever_a_restore_was_killed(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    first = WAITING._replace(row_key=row_of(store, 0).bytes)
    second, put = first._replace(body=b'"second"'), first._replace(ref_key=8)
    bodies = {first.body, second.body}
    buffered(store, 0, first)
    buffered(store, 0, second, in_own_cluster=True)
    buffered(store, 0, put)
    backed_up(store, tmp_path)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        job = restore_begun(copy, tmp_path)
        for point in ("restore.second_waits", "restore.second_noted", "jobs.before_save"):
            with failing_at(point), pytest.raises(FailpointReached):
                copy.backups().restore_runner(job, point).run()
            expire(copy)
        live = put._replace(body=b'"put since"')
        buffers = copy.clusters["a"].primary.node.buffers
        buffers.settle([each.number for each in buffers.waiting([0], 9, 1 << 20, Deadline(20))], {}, Deadline(20))
        buffered(copy, 0, live, in_own_cluster=True)
        assert copy.backups().restore_runner(job, "test").run() is JobState.DONE

        (conflict,) = buffers.conflicts(10, Deadline(20))
        (waits,) = [each.cell for each in buffers.waiting([0], 9, 1 << 20, Deadline(20)) if each.cell.ref_key == 7]
        assert {conflict.waiting.cell.body, waits.body} == bodies
        assert conflict.stored == waits.body
        (finding,) = copy.backups().jobs.findings(job.id)
        assert (finding.ref_key, "0000-buffered-" in str(finding.body["reason"])) == (8, True)


def test_i9_a_restore_that_is_given_up_before_its_decision_opens_nothing_and_after_it_goes_on(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    filled(store)
    backed_up(store, tmp_path)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        backups, job = copy.backups(), restore_begun(copy, tmp_path)
        with (
            doing_at("restore.before_decision", lambda: backups.cancel_restore(job.id)),
            pytest.raises(BackupRefused, match="was paused, or given up"),
        ):
            backups.restore_runner(job, "test").run()
        assert Topologies(copy.control).find_newest() is None
        nodes = [cluster.primary.node for cluster in copy.clusters.values()]
        assert {head.state.status for node in nodes for head in node.heads(None, Deadline(20)).values()} == {"COMES"}
    with empty(stores, server_engine, shards=SHARDS) as copy:
        backups, job = copy.backups(), restore_begun(copy, tmp_path)
        with failing_at("restore.shard_opened"), pytest.raises(FailpointReached):
            backups.restore_runner(job, "test").run()
        orphan = backups.jobs.create("restore", {}, [0])
        with pytest.raises(BackupRefused, match=f"{job.id} does, or did"):
            RestoreDecision(copy.control, orphan.id).check()
        assert backups.cancel_restore(orphan.id).state is JobState.CANCELLED, "the decision is not its own"
        with pytest.raises(BackupRefused, match="are being opened"):
            backups.cancel_restore(job.id)
        with pytest.raises(TopologyConflict, match=f"{job.id} restores"):
            copy.create_schema()
        expire(copy)
        assert backups.restore_runner(job, "again").run() is JobState.DONE
        copy.create_schema()
        execute_all(
            copy, *(f"DROP DATABASE IF EXISTS `{{name}}_{n:04d}`" for n in range(SHARDS)), "DROP DATABASE `{name}_meta`"
        )
        plan = backups.plan_restore(RestoreOrder(str(tmp_path), "last"))
        assert "The control database is of servers that were lost" in plan.refusals[0]


def test_a_restore_wants_a_datastore_without_shards_and_is_alone(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    filled(store)
    backed_up(store, tmp_path)
    backups = store.backups()

    plan = backups.plan_restore(RestoreOrder(str(tmp_path), "last"))
    assert ["has shards already" in each for each in plan.refusals] == [True]
    with pytest.raises(BackupRefused, match="has shards already"):
        backups.begin_restore(plan)
    with empty(stores, server_engine, shards=SHARDS * 2) as wider:
        assert "4 shards" in wider.backups().plan_restore(RestoreOrder(str(tmp_path), "last")).refusals[0]
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restoring, first = copy.backups(), restore_begun(copy, tmp_path)
        with pytest.raises(BackupRefused, match=f"{first.id} restores"):
            restore_begun(copy, tmp_path)
        with pytest.raises(TopologyConflict, match=f"{first.id} restores") as told:
            copy.create_schema()
        assert "--cancel" in str(told.value.hint)
        assert ([each.id for each in restoring.jobs.all("restore")], no_topology(copy)) == ([first.id], True)
        with failing_at("restore.page_written"), pytest.raises(FailpointReached):
            restoring.restore_runner(first, "first").run()
        restoring.cancel_restore("last")
        refused = restoring.plan_restore(RestoreOrder(str(tmp_path), "last"))
        assert "has 1 shards of this datastore already" in refused.refusals[0]


def test_i9_of_a_restore_and_a_creation_that_meet_one_makes_the_shards(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    backed_up(store, tmp_path)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        plan = copy.backups().plan_restore(RestoreOrder(str(tmp_path), "last"))
        with (
            doing_at("schema.before_topology", lambda: copy.backups().begin_restore(plan)),
            pytest.raises(TopologyConflict, match="restores this datastore"),
        ):
            copy.create_schema()
        assert no_topology(copy)
        copy.backups().cancel_restore("last")
        copy.create_schema()
        with pytest.raises(BackupRefused, match="was created meanwhile"):
            copy.backups().begin_restore(plan)
        assert [each.state for each in copy.backups().jobs.all("restore")] == [JobState.CANCELLED], "none is left"
        job = copy.backups().jobs.create("restore", {}, [0], with_it=document_put)
        with pytest.raises(TopologyConflict, match="another topology") as told:
            RestoreDecision(copy.control, job.id).decide(copy.schema.plan().topology)
        assert f"--cancel {job.id}" in str(told.value.hint)
        assert copy.backups().cancel_restore(job.id).state is JobState.CANCELLED


def document_put(connection: sa.Connection, job: str) -> None:
    """As a process of an earlier version did it, which asked for no topology."""
    assert put_within(connection, DOCUMENT, {"job": job}, 1)


def no_topology(store: Datastore) -> bool:
    return Topologies(store.control).find_newest() is None


def test_i1_a_restore_that_was_given_up_writes_nothing_to_the_copies_of_the_next_one(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    filled(store)
    made = backed_up(store, tmp_path)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restoring, first = copy.backups(), restore_begun(copy, tmp_path)
        second = []

        def give_up_and_begin() -> None:
            restoring.jobs.cancel("restore", first.id)
            execute_all(copy, "DROP DATABASE IF EXISTS `{name}_0000`", "DELETE FROM `{name}_meta`.shard_state")
            second.append(restored(copy, tmp_path))

        with doing_at("restore.prepared", give_up_and_begin):
            assert restoring.restore_runner(first, "first").run() is JobState.CANCELLED

        assert len(second) == 1
        assert logs_of(copy) == logs_of(store)
        assert made.cells == 40


def execute_all(store: Datastore, *statements: str) -> None:
    """Run SQL on the primary of each cluster."""
    for cluster in store.clusters.values():
        node = cluster.primary.node
        assert isinstance(node, MySQLNode)

        def run(connection: object) -> None:
            with connection.cursor() as cursor:  # type: ignore[attr-defined]  # one of PyMySQL's
                for statement in statements:
                    cursor.execute(statement.format(name=store.config.datastore))

        node._sessions.run(run, Deadline(20))


def test_i9_shards_open_as_the_authority_says_and_not_below_the_epoch_that_they_had(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    filled(store)
    execute(store, 0, "UPDATE {state} SET authority_epoch = 5")
    backed_up(store, tmp_path)

    class Authority:
        """As an authority row says."""

        epoch = 4

        def opening(self) -> Opening:
            return Opening(self.epoch, "COPY")

    authority = Authority()
    with empty(stores, server_engine, shards=SHARDS) as copy:
        backups = copy.backups(authority)
        plan = backups.plan_restore(RestoreOrder(str(tmp_path), "last"))
        assert "authority row is at epoch 4" in plan.refusals[0]
        authority.epoch = 5
        job = backups.begin_restore(backups.plan_restore(RestoreOrder(str(tmp_path), "last")))
        authority.epoch = 4
        with pytest.raises(BackupRefused, match="does not open at authority epoch 4"):
            backups.restore_runner(job, "test").run()
        authority.epoch = 6
        assert backups.restore_runner(job, "test").run() is JobState.DONE
        primaries = [cluster.primary.node for cluster in copy.clusters.values()]
        states = {head.state for node in primaries for head in node.heads(None, Deadline(20)).values()}
    assert {state[1:] for state in states} == {(6, "COPY")}


def test_i3_a_position_that_was_given_after_the_backup_is_refused_and_passes_over_nothing(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """A move opened the shard at the epoch after the one that the backup has; then all was lost."""
    filled(store)
    backed_up(store, tmp_path)
    moved(store, 0, to="b")
    store.put_cells([Cell(row_of(store, 0), "BASE", 1, "lost") for _ in range(3)])
    lost = store.get_cells_for_shard(0, 0, 100).position
    assert (lost.epoch, lost.added_id) == (2, 13)
    epochs = []
    for _ in range(2):
        with empty(stores, server_engine, shards=SHARDS) as copy:
            restored(copy, tmp_path)
            read = replace(lost, store=copy.config.datastore)  # tests give each datastore a name of its own
            copy.put_cells([Cell(row_of(copy, 0), "BASE", 1, "new") for _ in range(5)])

            with pytest.raises(PositionUnknown):
                copy.get_cells_for_shard(0, read, 100)

            before = replace(read, epoch=1, added_id=12)
            assert [cell.added_id for cell in copy.get_cells_for_shard(0, before, 100).cells] == [*range(11, 16)]
            epochs.append(copy.get_cells_for_shard(0, 0, 1).position.epoch)
    assert epochs == sorted(set(epochs)), "of two restores, too, each has epochs of its own"


def test_i2_bodies_that_fit_into_no_answer_together_are_read_one_by_one(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    row = row_of(store, 0)
    body = "ü" * 450_000
    for number in range(40):
        store.put_cell(row, "BASE", -number, f"{number} {body}" if number % 2 else None)

    made = backed_up(store, tmp_path)

    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path)
        assert logs_of(copy) == logs_of(store)
    assert made.cells == 40
