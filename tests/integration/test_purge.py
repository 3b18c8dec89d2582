"""A purge is killed at each line, and raced by puts: what it deleted is gone, and stays so (I1, I2, I3, I6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from uuid import UUID

import pytest

from schemaless_core import Cell, CellPurged, CellStore, Datastore
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.purging import PurgedKey, whole_row
from schemaless_core.errors import SchemaMissing
from schemaless_core.failpoints import FailpointReached
from schemaless_core.mends import RawCell
from schemaless_core.purging import purges
from schemaless_core.purging.purge_jobs import PurgeOrder
from schemaless_core.triggers.registry import trigger
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.fscks import DEEP, kinds_in, row_of
from tests.indexing import catch_up, only_maintained
from tests.purges import (
    INDEX,
    SECONDS,
    SHARDS,
    begun,
    bodies_of_lines,
    check_gone,
    filled,
    is_back,
    looking_at_no_key,
    of_versions,
    purge,
    run,
    versions,
)
from tests.repairs import doing_at, failing_at
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import BinlogServer


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    with stores.fresh(datastore_engine, shards=SHARDS, indexes=[INDEX]) as fresh:
        only_maintained(fresh)
        yield fresh


@pytest.fixture
def served(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX]) as fresh:
        yield fresh


def test_i2_a_purged_row_leaves_no_trace(store: Datastore) -> None:
    row_key = filled(store)
    catch_up(store)
    assert len(store.query_index("trips_of_driver", "driver 2").entries) == 1

    job = purge(store, row_key)

    assert store.purge_jobs.jobs.progress(job.id).counts == {"cells": 4, "purged": 1, "rows": 1}
    check_gone(store, row_key)
    assert bodies_of_lines(store) == []
    catch_up(store)
    for driver, count in (("driver 1", 3), ("driver 2", 0)):
        assert len(store.query_index("trips_of_driver", driver).entries) == count
    assert kinds_in(store, DEEP) == []
    assert store.mends.lines()[0].note.job == job.id


def test_i2_a_dry_run_counts_and_changes_nothing(store: Datastore) -> None:
    row_key = filled(store)
    its = store.purge_jobs

    assert its.count(its.plan(PurgeOrder((row_key, row_of(store, 1)))))[:2] == (4, 1)
    plan = its.plan(versions("BASE", "NOTE"))
    assert its.count(plan).cells == 2

    assert len(store.get_history(row_key, "BASE")) == 3


POINTS = (
    "purge.before_keep",
    "purging.before_send",
    "purging.answered",
    "purge.kept",
    "purge.before_delete",
    "mends.before_purge",
    "mending.before_send",
    "mending.answered",
    "mends.done",
    "mends.before_rebuild",
    "purge.before_erase",
    "purge.before_save",
    "purge.saved",
)


@pytest.mark.parametrize("point", POINTS)
def test_i2_a_purge_of_rows_that_was_killed_is_gone_on_with(store: Datastore, point: str) -> None:
    rows = [filled(store), filled(store, shard=1)]
    catch_up(store)
    job = begun(store, *rows)
    with failing_at(point), pytest.raises(FailpointReached):
        store.purge_jobs.runner(job, "killed", settle_seconds=0.0).run()

    run(store, job)

    for row_key in rows:
        check_gone(store, row_key)
    assert bodies_of_lines(store) == []
    assert kinds_in(store, DEEP) == []


@pytest.mark.parametrize("point", POINTS)
def test_i2_a_purge_of_versions_that_was_killed_is_gone_on_with(store: Datastore, point: str) -> None:
    rows = [filled(store), filled(store, shard=1)]
    catch_up(store)
    its = store.purge_jobs
    job = its.begin(its.plan(versions("BASE")))
    with failing_at(point), pytest.raises(FailpointReached):
        its.runner(job, "killed").run()

    run(store, job)

    for row_key in rows:
        assert [cell.ref_key for cell in store.get_history(row_key, "BASE")] == [3]
        with pytest.raises(CellPurged):
            store.put_cell(row_key, "BASE", 1, {"driver": "driver 1"})
    assert bodies_of_lines(store) == []
    assert len(store.query_index("trips_of_driver", "driver 2").entries) == 2
    assert len(store.query_index("trips_of_driver", "driver 1").entries) == 6
    assert kinds_in(store, DEEP) == []


@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
def test_i2_another_purge_in_the_shard_has_no_body_stay_of_one_that_is_under_way(
    store: Datastore, is_killed: bool
) -> None:
    """The other one strips all lines of the shard while this one has its keys, and has deleted nothing yet."""
    row_key = filled(store)
    store.put_cell(row_key, "NOTE", 2, "another")
    catch_up(store)
    job, other = of_versions(store, "BASE"), of_versions(store, "NOTE")

    def beside() -> None:
        run(store, other)
        if is_killed:
            stack.enter_context(failing_at("mends.done"))

    with doing_at("purge.before_delete", beside), ExitStack() as stack:
        if is_killed:
            stack.enter_context(pytest.raises(FailpointReached))
        store.purge_jobs.runner(job, "first").run()

    if is_killed:
        run(store, job)

    assert bodies_of_lines(store) == []
    assert [cell.ref_key for cell in store.get_history(row_key, "BASE")] == [3]
    assert kinds_in(store, DEEP) == []


def test_i6_lines_that_come_while_another_purge_makes_entries_right_keep_their_bodies(store: Datastore) -> None:
    """Those it has not seen, and its own purge goes on: of them the values come under which entries stand."""
    row_key = filled(store)
    primaries = store.purges._primaries
    first, second = (RawCell(cell) for cell in stored(store, row_key, "BASE")[:2])
    store.purges._keep(0, [PurgedKey(row_key.bytes, b"BASE", 2)])
    store.mends.purge(first)
    seen = store.purges._unerased(0)
    store.mends.purge(second)

    primaries.write(0, partial(purges._erase, seen))

    assert bodies_of_lines(store) == [second.body]
    assert [key[:2] for key in store.purges._unerased(0).keys] == [(row_key.bytes, b"BASE")]
    primaries.write(0, partial(purges._erase, seen._replace(epoch=seen.epoch + 1, last_line=2**40)))
    assert bodies_of_lines(store) == [second.body], "by numbers of lines of another server nothing is done"
    store.purges._finish_columns(0)
    assert bodies_of_lines(store) == []


def stored(store: Datastore, row_key: UUID, column: str) -> list[StoredCell]:
    """Versions as their shard has them, oldest first."""
    cells = store.clusters["a"].primary.node.purging.versions(0, row_key.bytes, 100, Deadline(SECONDS)).cells
    return [cell for cell in cells if cell.column_name == column.encode()]


def put(store: Datastore, row_key: UUID) -> object:
    return store.put_cell(row_key, "BASE", 9, "late")


def put_after(store: Datastore, row_key: UUID) -> object:
    return store.put_cell(row_key, "OTHER", 9, "late", expect_latest=None)


def put_batch(store: Datastore, row_key: UUID) -> object:
    outcome = store.put_encoded([encode_cell(Cell(row_key, "BASE", 9, "late"), 1000)])
    assert outcome.problems == ()
    if outcome.purged:
        raise CellPurged((row_key.bytes, b"BASE", 9), 0)
    return outcome


Way = Callable[[Datastore, UUID], object]
WAYS: tuple[Way, ...] = (put, put_after, put_batch)


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded before", "first key"])
@pytest.mark.parametrize("way", WAYS)
def test_i2_a_put_that_waits_for_the_counter_row_sees_the_key_that_is_committed_meanwhile(
    served: Datastore, stores: Stores, server_engine: ServerEngine, way: Way, is_guarded: bool
) -> None:
    row_key = row_of(served, 0)
    if is_guarded:
        purge(served, row_of(served, 0))
    served.put_cell(row_of(served, 0), "BASE", 1, "warm")

    assert raced(served, stores.clusters(server_engine)[0].primary, row_key, way) == "purged"

    assert not is_back(served, row_key)


@pytest.mark.parametrize("way", WAYS)
def test_control_a_put_that_looks_at_no_key_stores_what_is_being_purged(
    served: Datastore, stores: Stores, server_engine: ServerEngine, way: Way
) -> None:
    row_key = row_of(served, 0)
    with looking_at_no_key():
        assert raced(served, stores.clusters(server_engine)[0].primary, row_key, way) == "stored"
    assert is_back(served, row_key)


def raced(store: Datastore, server: BinlogServer, row_key: UUID, way: Way) -> str:
    """What becomes of a put that was sent while a purge held the counter row, and had not written its key."""
    node = store.clusters["a"].primary.node
    assert isinstance(node, MySQLNode)
    names = node._names
    key = (row_key.bytes, whole_row(row_key.bytes).ref_key)
    with ThreadPoolExecutor(1) as others, closing(server.connect()) as purging, purging.cursor() as cursor:
        purging.begin()
        cursor.execute(f"SELECT 1 FROM {names.shard_state} WHERE shard = 0 FOR UPDATE")
        later = others.submit(way, store, row_key)
        wait_until("the put waits for the row", lambda: waits_for_rows(server) == 1)
        cursor.execute(f"UPDATE {names.shard_state} SET guarded = 1 WHERE shard = 0")
        cursor.execute(f"INSERT INTO {names.purged_key} VALUES (0, %s, '', %s, 0, UTC_TIMESTAMP(6))", key)
        purging.commit()
        try:
            later.result(SECONDS)
        except CellPurged:
            return "purged"
        return "stored"


def waits_for_rows(server: BinlogServer) -> int:
    """How many transactions do. MySQL cannot say their statements, as they hold bytes that are no text."""
    (found,) = server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
    return int(str(found["Value"]))


def test_i7_triggers_and_readers_pass_what_was_purged(datastore_engine: str, stores: Stores) -> None:
    """Delivered before it: once. Purged before it was delivered: never. All others: once."""
    notebook = Notebook()
    with stores.fresh(datastore_engine, shards=SHARDS, triggers=quick()) as store:
        before = filled(store)
        with working(store, [noting(notebook)]):
            wait_until_caught_up(store, "noted")
        late = filled(store)
        purge(store, before, late)
        store.put_cell(row_of(store, 0), "BASE", 1, "after")
        with working(store, [noting(notebook)]):
            wait_until_caught_up(store, "noted")

        keys = [cell.key for cell in notebook.cells]
        assert len(keys) == len(set(keys))
        assert sum(cell.row_key == before for cell in notebook.cells) == 3
        assert sum(cell.row_key == late for cell in notebook.cells) == 0
        assert len(keys) == 3 + 6 + 1


def test_i7_what_a_transactional_trigger_puts_to_a_purged_key_is_told_in_the_log(
    datastore_engine: str, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    @trigger(column="BASE", start="beginning", transactional=True, name="billing")
    def billing(row_key: UUID, store: CellStore) -> None:
        store.put_cell(row_key, "NOTE", 1, "billed")

    with stores.fresh(datastore_engine, shards=SHARDS, triggers=quick()) as store:
        gone, kept = row_of(store, 0), row_of(store, 0)
        store.purges._keep(0, [PurgedKey(gone.bytes, b"NOTE", 5)])
        store.put_cells([Cell(row_key, "BASE", 1, {}) for row_key in (gone, kept)])
        with working(store, [billing]):
            wait_until_caught_up(store, "billing")

        assert (store.get_cell_latest(gone, "NOTE") is None, store.get_cell_latest(kept, "NOTE") is None) == (
            True,
            False,
        )
        told = [record for record in caplog.records if getattr(record, "event", "") == "triggers.purged"]
        assert [record.__dict__["row_key"] for record in told] == [str(gone)]


def test_tables_of_an_earlier_version_take_puts_and_a_purge_says_what_they_lack(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with stores.fresh(server_engine, shards=SHARDS) as store:
        row_key = row_of(store, 0)
        for cluster in stores.clusters(server_engine):
            meta = f"{store.config.datastore}_meta"
            cluster.primary.query(f"DROP TABLE {meta}.purged_key")
            cluster.primary.query(f"ALTER TABLE {meta}.shard_state DROP COLUMN guarded")
        with Datastore(store.config) as later:
            assert later.put_cell(row_key, "BASE", 1, "one").status == "CREATED"
            later.put_cells([Cell(row_key, "BASE", 2, "two"), Cell(row_of(store, 1), "BASE", 1, "other")])
            with pytest.raises(SchemaMissing):
                later.purges.rows([row_key])
            assert later.schema.plan().missing_tables["a"] == ["purged_key", "shard_state.guarded"]

            later.create_schema()

            assert later.schema.plan().is_done
            assert not [
                fact
                for *_where, facts in later.schema.facts()
                for fact in facts
                if fact.is_refusal and not fact.is_fine
            ]
            assert later.purges.rows([row_key]).cells == 2
            with pytest.raises(CellPurged):
                later.put_cell(row_key, "BASE", 1, "one")
