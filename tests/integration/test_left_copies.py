"""Copies that moves leave: what is dropped of them and when, and what they keep of purged rows (I1, I2)."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Datastore
from schemaless_core.control.jobs.records import JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Beside, HoldsCopies
from schemaless_core.engine.mysql.copies import tables
from schemaless_core.engine.mysql.copies.beside import CopiedBeside
from schemaless_core.errors import MoveRefused
from schemaless_core.failpoints import FailpointReached
from schemaless_core.indexes.left_entries import LeftEntries
from schemaless_core.logcopy.checks import recopy
from schemaless_core.logcopy.ends import copies_of
from schemaless_core.moves import steps
from schemaless_core.moves.mover import Mover
from schemaless_core.moves.moves import OldCopy
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.ports import Placed
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.steps import Moved
from schemaless_core.purging.purges import Purges
from schemaless_core.steps import run
from tests.fscks import DEEP, kinds_in, row_of
from tests.indexing import catch_up, only_maintained
from tests.purges import INDEX, SHARDS, bodies_of_lines, check_gone, filled, of_versions, purge
from tests.purges import run as run_purge
from tests.repairs import failing_at
from tests.stores import ServerEngine, Stores


@pytest.fixture
def served(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX]) as fresh:
        yield fresh


def mover(store: Datastore, to: str, shard: int = 0) -> Mover:
    return store.moves().mover(ShardOrder(shard, to), MoveOrder((shard,), to, hold_seconds=5.0))


def go(store: Datastore, to: str, *shards: int) -> None:
    for shard in shards:
        assert isinstance(mover(store, to, shard).run(lambda step: None), Moved)


def left(store: Datastore) -> list[OldCopy]:
    return store.moves().old_copies()


# Dropped copies.


def databases(stores: Stores, engine: ServerEngine, store: Datastore) -> set[str]:
    """Those of shards, on the first cluster."""
    prefix = f"{store.config.datastore}_0"
    return {
        name
        for row in stores.clusters(engine)[0].primary.query("SHOW DATABASES")
        if (name := str(next(iter(row.values())))).startswith(prefix)
    }


def test_i1_a_copy_that_is_dropped_is_gone_and_its_shard_comes_back_with_all_of_its_log(
    served: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    row_key = filled(served)
    catch_up(served)
    go(served, "b", 0)
    (copy,) = left(served)

    assert served.moves().drop(copy)

    assert left(served) == []
    facts = served.clusters["a"].primary.node.facts(is_replica=False, shards=SHARDS)
    assert [fact.value for fact in facts if fact.name == "databases"] == [], "no shard has lost its cells"
    assert databases(stores, server_engine, served) == {f"{served.config.datastore}_0001"}
    assert not served.moves().drop(OldCopy(0, "b", 7, False, None)), "the shard itself is no copy"
    assert len(served.get_history(row_key, "BASE")) == 3
    moving = mover(served, "a")
    assert moving.run(lambda step: None) == Moved(Placed("a", 3))
    assert moving.cells == 7
    assert served.put_cell(row_of(served, 0), "BASE", 1, {"driver": "driver 1"}).added_id == 8
    assert kinds_in(served, DEEP) == []


def test_i1_a_drop_that_is_killed_is_repeated_or_gone_on_with_by_a_mover(served: Datastore) -> None:
    filled(served)
    go(served, "b", 0)
    (copy,) = left(served)

    with failing_at("copies.given_up"), pytest.raises(FailpointReached):
        served.moves().drop(copy)

    assert [each.shard for each in left(served)] == [0], "its tables are there still"
    go(served, "a", 0)
    assert kinds_in(served, DEEP) == []
    (other,) = left(served)
    assert served.moves().drop(other)
    assert left(served) == []


def test_i1_no_mover_claims_a_copy_whose_tables_are_being_dropped(served: Datastore) -> None:
    """Else one that was stopped in between would drop the shard that has come meanwhile."""
    filled(served)
    go(served, "b", 0)
    (copy,) = left(served)
    coming = mover(served, "a")
    tried = list[object]()

    def come(_point: str) -> None:
        tried.append(coming._ports.shards.prepare("a", 2))

    with patch("schemaless_core.engine.mysql.copies.copies.reach", come):
        assert served.moves().drop(copy)

    assert len(tried) == 1
    assert "makes or drops" in coming.silence("a")
    assert coming.run(lambda step: None) == Moved(Placed("a", 3))


def test_a_mover_that_had_the_copy_before_it_was_dropped_writes_to_it_no_more(served: Datastore) -> None:
    filled(served)
    go(served, "b", 0)
    (copy,) = left(served)
    coming = mover(served, "a")
    going = steps.move(coming._ports, "a")
    while next(going) is not steps.LEAVE:
        pass
    with pytest.raises(MoveRefused, match="is being moved"):
        served.moves().drop(copy)

    def dropped(claim: int) -> bool:
        ask = served.clusters["a"].ask
        return ask(lambda node: copies_of(node).drop(0, claim, Deadline(5)))

    assert dropped(1), "behind the look of a command"

    run(going)
    assert served.put_cell(row_of(served, 0), "BASE", 1, {"driver": "driver 1"}).added_id == 8
    go(served, "a", 0)
    assert kinds_in(served, DEEP) == []


def test_a_shard_that_a_job_moves_keeps_its_copies(served: Datastore) -> None:
    go(served, "b", 0)
    (copy,) = left(served)
    moves = served.moves()
    job = moves.begin(moves.plan(MoveOrder((0,), "a", hold_seconds=5.0)))

    with pytest.raises(MoveRefused, match="is being moved") as refused:
        moves.drop(copy)

    assert job.id in str(refused.value.hint)
    assert moves.runner(job, "test").run() is JobState.DONE


# Entries of purged rows.


def entries_left(store: Datastore, row_key: UUID) -> int:
    """How many a row has in copies, of whichever shard."""
    found = 0
    for cluster in store.clusters.values():
        for shard in cluster.ask(lambda node: copies_of(node).there(Deadline(5))):
            (version,) = store._index_parts.catalogue.kept()
            rows = {shard: [row_key.bytes]}
            seen = cluster.ask(lambda node: node.find_entries_of(version.table, rows, Deadline(5)))  # noqa: B023  # called at once
            found += len(seen[shard].entries)
    return found


@pytest.mark.parametrize("is_stripped", [False, True], ids=["values known", "values unknown"])
@pytest.mark.parametrize("breaks", [False, True], ids=["purged", "control"])
def test_i2_copies_have_no_entry_of_a_purged_row(served: Datastore, *, breaks: bool, is_stripped: bool) -> None:
    """Not under values that only superseded versions had, and whose lines have no body any more."""
    only_maintained(served)
    row_key = filled(served)
    catch_up(served)
    go(served, "b", 0, 1)
    go(served, "a", 2, 3)
    assert entries_left(served, row_key) == 2, "one under each value"
    if is_stripped:
        run_purge(served, of_versions(served, "BASE"))
    nothing = "remove_all" if is_stripped else "remove"

    if breaks:
        with patch.object(LeftEntries, nothing, lambda *_call: None):
            purge(served, row_key)
        assert entries_left(served, row_key) > 0
        return
    purge(served, row_key)

    assert entries_left(served, row_key) == 0
    check_gone(served, row_key)
    go(served, "a", 0, 1)
    assert kinds_in(served, DEEP) == []


def test_i2_a_copy_without_the_tables_of_an_index_or_of_cells_keeps_no_purge_from_its_end(
    served: Datastore, server_engine: ServerEngine, stores: Stores
) -> None:
    """They were dropped by hand, or the copy is older than the index. The other copies of that server are purged."""
    row_key, other = filled(served), filled(served, shard=1)
    catch_up(served)
    go(served, "b", 0, 1)
    server, name = stores.clusters(server_engine)[0].primary, served.config.datastore
    server.query(f"DROP DATABASE {name}_0000")
    server.query(f"DROP TABLE {name}_0001.trips_of_driver_v1")

    purge(served, row_key, other)

    (cells,) = server.query(f"SELECT COUNT(*) AS n FROM {name}_0001.cell WHERE row_key = %s", other.bytes)
    assert cells["n"] == 0


# What stands beside a log where much was purged.


def test_what_was_copied_beside_a_log_before_is_not_sent_while_the_shard_is_closed(served: Datastore) -> None:
    """Purged keys and ids may be many. What is purged in between goes, and lines of other shards are passed."""
    keys = [filled(served) for _ in range(3)]
    purge(served, *keys)
    late, put, sent = filled(served), CopiedBeside.put_beside, list[Beside]()

    def noted(its: CopiedBeside, shard: int, claim: int, beside: Beside, *rest: object) -> bool:
        sent.append(beside)
        return put(its, shard, claim, beside, *rest)  # type: ignore[arg-type]  # as they came

    with patch.object(CopiedBeside, "put_beside", noted):
        going = steps.move(mover(served, "b")._ports, "b")
        while next(going) is not steps.LEAVE:
            pass
        purge(served, late)
        purge(served, filled(served, shard=1))
        assert run(going) == Moved(Placed("b", 2))

    assert [len(each.tables.get("purged_key", ())) for each in sent] == [3, 0, 1]
    assert [len(each.mended) for each in sent] == [12, 0, 4]
    assert all("purged" not in each.tables for each in sent)
    marks = [each.mark for each in sent]
    assert marks[2] >= marks[1] + 8, "the lines of the other shard are behind it"
    for row_key in (*keys, late):
        check_gone(served, row_key)
    assert bodies_of_lines(served) == []
    assert kinds_in(served, DEEP) == []


@pytest.mark.parametrize("breaks", [False, True], ids=["recopied", "control"])
def test_i2_what_is_purged_after_it_was_compared_does_not_arrive(
    served: Datastore, monkeypatch: pytest.MonkeyPatch, *, breaks: bool
) -> None:
    """Its added ids come with the parts of the log that the lines name."""
    monkeypatch.setattr(steps, "NEAR_CELLS", 0)  # else the flip copies all of so short a log
    row_key = filled(served)
    going = steps.move(mover(served, "b")._ports, "b")
    while next(going) is not steps.LEAVE:
        pass
    with patch.object(Purges, "_forget_in_copies", lambda *_rows: None):  # as if the pages were on their way
        purge(served, row_key)

    with patch("schemaless_core.moves.copies.recopy", (lambda *_part: None) if breaks else recopy):
        assert run(going) == Moved(Placed("b", 2))

    if breaks:
        assert served.get_row(row_key) != {}
    else:
        check_gone(served, row_key)
        assert kinds_in(served, DEEP) == []


@pytest.mark.parametrize("breaks", [False, True], ids=["stripped", "control"])
def test_i2_lines_whose_bodies_go_while_the_shard_is_moved_arrive_without(
    served: Datastore, monkeypatch: pytest.MonkeyPatch, *, breaks: bool
) -> None:
    """They were copied with their bodies, for practice."""
    row_key, purges = filled(served), served.purges
    purges.rows([row_key])
    going = steps.move(mover(served, "b")._ports, "b")
    while next(going) is not steps.LEAVE:
        pass
    with patch.object(Purges, "_forget_in_copies", lambda *_rows: None):  # as if the lines were on their way
        purges.finish_rows([row_key])
    if breaks:
        monkeypatch.setattr(tables, "ERASE", "DO %s + %s")

    assert run(going) == Moved(Placed("b", 2))

    assert (bodies_of_lines(served) != []) == breaks


@pytest.mark.parametrize("breaks", [False, True], ids=["stripped", "control"])
def test_i2_lines_that_an_old_copy_has_with_bodies_lose_them_on_the_way_back(
    served: Datastore, monkeypatch: pytest.MonkeyPatch, *, breaks: bool
) -> None:
    """A purge of versions strips the lines of the shard, and leaves its copies as they are."""
    filled(served)
    job = of_versions(served, "BASE")
    with failing_at("purge.before_erase"), pytest.raises(FailpointReached):
        run_purge(served, job)
    go(served, "b", 0)
    run_purge(served, of_versions(served, "BASE"))
    if breaks:
        monkeypatch.setattr(tables, "STRIPPED", tables.SAME_TOKEN)

    go(served, "a", 0)

    assert (bodies_of_lines(served) != []) == breaks


def test_files_have_no_copies(stores: Stores) -> None:
    with stores.fresh("sqlite", shards=SHARDS, indexes=[INDEX]) as store:
        node = store.clusters["a"].primary.node
        assert not isinstance(node, HoldsCopies)
        purge(store, filled(store))
        assert left(store) == []
