"""fsck: each damage is found, by its invariant, and mended by what it names. What is right is never called wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from schemaless_core import Cell, CellConflict, Datastore
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.sqlite.node import SQLiteNode
from schemaless_core.errors import LogHole
from schemaless_core.failpoints import FailpointReached, use_folder
from schemaless_core.fsck import shard_logs
from schemaless_core.fsck.faults import NOT_COMPARED, RULES, Fault, commands_of
from schemaless_core.fsck.fsck import FsckOrder
from schemaless_core.fsck.mending import FsckMending, MendOutcome
from schemaless_core.fsck.shard_logs import LogWalk
from tests.damage import execute, lose, spoil
from tests.fscks import DEEP, found_in, kinds_in, look, mend, row_of
from tests.indexing import catch_up, only_maintained
from tests.stores import Stores
from tripstore.cli.exits import Exit
from tripstore.cli.fsck.documents import fsck_document
from tripstore.cli.jobs.documents import progress_document

SHARD, OTHER = 0, 7
INDEX = {"table": "of_city", "column_defs": [{"column_key": "BASE", "fields": [{"field": "city", "type": "string"}]}]}


@pytest.fixture(scope="session")
def stores(stores: Stores) -> Stores:
    """On servers with replicas."""
    return stores.replicated


@pytest.fixture
def filled(datastore_engine: str, stores: Stores) -> Datastore:
    """Cells in every shard, more of them in one."""
    store = stores.fresh(datastore_engine, indexes=[INDEX])
    rows = [row_of(store, shard) for shard in range(8)] + [row_of(store, SHARD) for _n in range(20)]
    store.put_cells([Cell(row, "BASE", 1, {"city": f"city {n}"}) for n, row in enumerate(rows)])
    only_maintained(store)
    catch_up(store)
    stores.wait_for_replicas(datastore_engine)
    return store


def cells_of(store: Datastore, shard: int = SHARD) -> list[Cell]:
    return list(store.get_cells_for_shard(shard, 0, 1_000).cells)


def test_what_is_right_is_called_right_and_all_of_it_was_looked_at(filled: Datastore) -> None:
    fsck = filled.fsck
    job = look(filled, DEEP)
    assert fsck.jobs.findings(job.id) == []
    progress = fsck.jobs.progress(job.id)
    assert progress.parts == progress.parts_done
    assert progress.counts["rows"] == 28 * (1 if is_sqlite(filled) else 2), "of primaries and replicas"
    assert kinds_in(filled) == []


# Of the logs of shards: each is found, and mended by fsck itself.


def is_sqlite(store: Datastore) -> bool:
    return isinstance(store.clusters["a"].primary.node, SQLiteNode)


def age(store: Datastore, cell: Cell) -> None:
    hour = "3600000000" if is_sqlite(store) else "INTERVAL 1 HOUR"
    where = "{of} AND added_id = %s"
    execute(store, SHARD, f"UPDATE {{cell}} SET created_at = created_at - {hour} WHERE {where}", cell.added_id)


def lower_counter(store: Datastore) -> None:
    execute(store, SHARD, "UPDATE {state} SET next_added_id = next_added_id - 2 WHERE shard = %s", SHARD)


def move_astray(store: Datastore, cell: Cell) -> Cell:
    """The same cell, of a row of another shard."""
    row = row_of(store, OTHER)
    where = "{of} AND added_id = %s"
    execute(store, SHARD, f"UPDATE {{cell}} SET row_key = %s WHERE {where}", row.bytes, cell.added_id)
    return Cell(row, cell.column_name, cell.ref_key, cell.body)


def test_i3_cells_above_the_counter_are_below_it_afterwards(filled: Datastore) -> None:
    lower_counter(filled)
    above = [each.ref_key for each in found_in(filled) if each.kind == Fault.ABOVE_HEAD]
    assert len(above) == 2

    assert mend(filled) == [MendOutcome.MENDED, MendOutcome.GONE], "the first mend is of both"

    assert kinds_in(filled) == []
    assert filled.put_cell(row_of(filled, SHARD), "BASE", 1, "x").added_id == 22


def test_i3_a_cell_that_is_older_than_the_one_before_it_is_as_old_afterwards(filled: Datastore) -> None:
    cells = cells_of(filled)
    age(filled, cells[10])
    age(filled, cells[11])
    (first, second) = found_in(filled)
    assert (first.kind, first.body["added_id"], second.body["added_id"]) == (Fault.TIME, 11, 12)

    assert mend(filled) == [MendOutcome.MENDED, MendOutcome.MENDED]

    assert kinds_in(filled) == []
    assert cells_of(filled)[10].created_at == cells[9].created_at


def test_i2_bytes_of_the_same_value_become_canonical(filled: Datastore) -> None:
    cell = cells_of(filled)[3]
    spoil(filled, cell, b'{"city" : "city"}')
    (found,) = found_in(filled)
    assert (found.kind, found.row_key, found.ref_key) == (Fault.BYTES, cell.row_key, 1)

    assert mend(filled) == [MendOutcome.MENDED]

    assert kinds_in(filled) == []
    assert filled.get_cell(*cell.key) == Cell(*cell.key, {"city": "city"})
    assert [line.action.value for line in filled.mends.lines()] == ["mend"]


def test_i2_bytes_that_are_no_json_are_left_until_the_operator_gives_them_up(filled: Datastore) -> None:
    cell = cells_of(filled)[3]
    spoil(filled, cell, b'{"city')
    assert mend(filled) == [MendOutcome.LEFT]
    assert kinds_in(filled) == [Fault.BYTES]

    assert mend(filled, may_give_up=True) == [MendOutcome.GIVEN_UP]

    assert kinds_in(filled) == []
    assert filled.get_cell(*cell.key) is None


def test_i1_i3_holes_are_runs_that_readers_pass_once_they_are_given_up(filled: Datastore) -> None:
    cells = cells_of(filled)
    for cell in (*cells[4:7], cells[-1]):
        lose(filled, cell)
    holes = [(each.body["first"], each.body["last"]) for each in found_in(filled)]
    assert holes == [(5, 7), (21, 21)]
    with pytest.raises(LogHole):
        cells_of(filled)
    assert mend(filled) == [MendOutcome.LEFT, MendOutcome.LEFT]

    assert mend(filled, may_give_up=True) == [MendOutcome.GIVEN_UP, MendOutcome.GIVEN_UP]

    assert kinds_in(filled) == []
    assert cells_of(filled) == [*cells[:4], *cells[7:-1]]


def test_i3_what_is_older_than_a_time_that_has_not_come_is_left(filled: Datastore) -> None:
    """One cell is of the year 2099. To raise all that follow would lose when they were written."""
    cell = cells_of(filled)[10]
    later = "4070908800000000" if is_sqlite(filled) else "'2099-01-01'"
    execute(filled, SHARD, f"UPDATE {{cell}} SET created_at = {later} WHERE {{of}} AND added_id = %s", cell.added_id)
    times = [each.created_at for each in cells_of(filled)]
    assert kinds_in(filled) == [Fault.TIME] * 10

    assert set(mend(filled)) == {MendOutcome.LEFT}

    assert [each.created_at for each in cells_of(filled)] == times


def test_i1_a_hole_whose_cell_was_put_again_is_closed(filled: Datastore) -> None:
    """The cell stands behind the hole already: a replica's would be a second one under its key."""
    cell = cells_of(filled)[4]
    hole = lose(filled, cell)
    filled.put_cell(*cell.key, cell.body)
    stored = StoredCell(hole, cell.row_key.bytes, b"BASE", 1, canonical_bytes(cell.body), cell.created_at or missing())

    with patch.object(FsckMending, "_of_replicas", lambda *_its: iter([stored])):
        assert mend(filled) == [MendOutcome.MENDED]

    assert kinds_in(filled) == []
    assert [each.key for each in cells_of(filled)].count(cell.key) == 1


def test_i12_an_index_that_reads_what_is_no_json_is_not_compared_and_the_rest_is(filled: Datastore) -> None:
    spoil(filled, cells_of(filled)[3], b"[" * 5_000)

    assert kinds_in(filled, DEEP) == sorted([Fault.BYTES, NOT_COMPARED])


def test_i12_a_shard_that_another_server_leads_by_now_is_begun_anew(filled: Datastore) -> None:
    """What the new one has below was not looked at. The control: a checkpoint of this epoch goes on behind it."""
    spoil(filled, cells_of(filled)[2], b"{")
    walk = LogWalk(filled._router, 8)
    later = walk.step([SHARD, SHARD], [SHARD, 10, 21, 7, ""])
    assert (later.rows, later.checkpoint, later.is_end) == (0, [SHARD, 0, -1, 0, ""], False)

    assert [each.kind for each in walk.step([SHARD, SHARD], later.checkpoint).findings] == [Fault.BYTES]
    assert walk.step([SHARD, SHARD], [SHARD, 10, 21, 1, ""]).findings == []


def test_i2_a_cell_astray_is_brought_home(filled: Datastore) -> None:
    stray = move_astray(filled, cells_of(filled)[3])
    (found,) = found_in(filled)
    assert (found.kind, found.row_key, found.body["shard"]) == (Fault.ELSEWHERE, stray.row_key, SHARD)
    assert filled.get_cell(*stray.key) is None

    assert mend(filled) == [MendOutcome.MENDED]

    assert filled.get_cell(*stray.key) == stray
    assert kinds_in(filled) == []


def test_i2_a_cell_astray_stays_where_it_is_when_home_has_another_body(filled: Datastore) -> None:
    stray = move_astray(filled, cells_of(filled)[3])
    filled.put_cell(*stray.key, "other")

    assert mend(filled) == [MendOutcome.LEFT]

    assert kinds_in(filled) == [Fault.ELSEWHERE]
    with pytest.raises(CellConflict):
        filled.put_cell(*stray.key, stray.body)


def test_i12_beside_postgres_what_was_lost_or_torn_is_left_to_repair(filled: Datastore) -> None:
    """Which may know it: giving it up here would lose it."""
    cells = cells_of(filled)
    lose(filled, cells[4])
    spoil(filled, cells[6], b"{")

    assert mend(filled, may_give_up=True, is_beside_postgres=True) == []

    found = found_in(filled)
    assert {each.kind for each in found} == {Fault.HOLE, Fault.BYTES}
    assert all("tripstore repair" in commands_of(each, "last", is_beside_postgres=True)[2] for each in found)
    assert all("fsck --mend" in commands_of(each, "last", is_beside_postgres=False)[2] for each in found)


@pytest.mark.parametrize("name", ["fsck.before_mend", "mends.before_purge", "mends.before_rebuild"])
def test_i4_a_mend_that_was_killed_is_made_again(
    name: str, datastore_engine: str, stores: Stores, failpoints: Any
) -> None:
    store = stores.fresh(datastore_engine, indexes=[INDEX])
    cell = Cell(row_of(store, SHARD), "BASE", 1, {"city": "SF"})
    store.put_cell(*cell.key, cell.body)
    spoil(store, cell, b"{")
    (failpoints / name).write_text("raise")
    use_folder(failpoints)
    try:
        with pytest.raises(FailpointReached):
            mend(store, may_give_up=True)
    finally:
        use_folder(None)

    mend(store, may_give_up=True)

    assert (failpoints / f"{name}.hit").exists()
    assert kinds_in(store) == []


# While callers work.


def test_i12_nothing_is_wrong_while_callers_put(filled: Datastore) -> None:
    ended = threading.Event()
    failures = list[BaseException]()

    def put() -> None:
        try:
            while not ended.wait(0.02):  # as load, and no more than is looked at meanwhile
                cells = [Cell(row_of(filled, SHARD), "BASE", 1, {"city": "x"}) for _n in range(5)]
                filled.put_cells(cells)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=put) for _n in range(2)]
    for thread in threads:
        thread.start()
    try:
        with patch.object(shard_logs, "CELLS_PER_PAGE", 100):
            found = [kinds_in(filled) for _n in range(3)]
    finally:
        ended.set()
        for thread in threads:
            thread.join()

    assert failures == []
    assert found == [[]] * 3


def test_i12_control_a_head_that_is_read_before_the_cells_calls_new_ones_wrong(filled: Datastore) -> None:
    with put_before_each_page(filled):
        assert kinds_in(filled) == []
    read = LogWalk._read

    def with_older_head(walk: LogWalk, place: Any) -> Any:
        head = filled.clusters[filled._router.cluster_of(place.shard, soon())].primary.ask(
            lambda node: node.heads([place.shard], soon())[place.shard]
        )
        filled.put_cell(row_of(filled, place.shard), "BASE", 1, "x")
        return read(walk, place)._replace(head=head)

    with patch.object(LogWalk, "_read", with_older_head):
        assert Fault.ABOVE_HEAD in kinds_in(filled)


@contextmanager
def put_before_each_page(store: Datastore) -> Iterator[None]:
    read = LogWalk._read

    def put_and_read(walk: LogWalk, place: Any) -> Any:
        store.put_cell(row_of(store, place.shard), "BASE", 1, "x")
        return read(walk, place)

    with patch.object(LogWalk, "_read", put_and_read):
        yield


def soon() -> Deadline:
    return Deadline(20.0)


# Jobs.


@pytest.mark.parametrize("name", ["fsck.step", "fsck.before_save", "fsck.saved"])
def test_i11_one_that_is_interrupted_anywhere_counts_what_another_one_counts(
    filled: Datastore, failpoints: Any, name: str
) -> None:
    for cell in cells_of(filled)[4:7]:
        spoil(filled, cell, b"{")
    whole = filled.fsck.jobs.progress(look(filled).id)
    fsck = filled.fsck
    job = fsck.begin(fsck.plan(FsckOrder()))
    use_folder(failpoints)
    try:
        for after in (0, 2, 4):
            (failpoints / name).write_text(f"raise after={after}")
            with pytest.raises(FailpointReached):
                fsck.runner(job, "killed").run()
    finally:
        use_folder(None)

    fsck.runner(job, "heir").run()

    counted = fsck.jobs.progress(job.id)
    assert (counted.counts, counted.findings_open) == (whole.counts, whole.findings_open)
    assert counted.counts[Fault.BYTES] == 3


def test_i11_of_very_many_findings_a_sample_is_kept_and_all_are_counted(filled: Datastore) -> None:
    for cell in cells_of(filled)[:6]:
        spoil(filled, cell, b"{")
    with patch("schemaless_core.fsck.runner.SAMPLE", 4):
        job = look(filled)

    counts = filled.fsck.jobs.progress(job.id).counts
    assert (counts[Fault.BYTES], counts["findings_left_out"]) == (6, 2)
    assert len(filled.fsck.jobs.findings(job.id)) == 4
    filled.fsck.jobs.solve(job.id, [each.id for each in filled.fsck.jobs.findings(job.id)])
    seen = fsck_document(progress_document(filled.fsck.jobs.progress(job.id)), {}, [], is_beside_postgres=False)
    assert (seen.is_clean, seen.exit) == (False, Exit.FAILED), "what was not kept is not mended"


def test_a_part_of_the_shards_or_of_the_columns_is_looked_at_alone(filled: Datastore) -> None:
    spoil(filled, cells_of(filled)[0], b"{")
    spoil(filled, cells_of(filled, OTHER)[0], b"{")

    assert kinds_in(filled, FsckOrder(shards=(1, 7))) == [Fault.BYTES]
    assert kinds_in(filled, FsckOrder(shards=(1, 6))) == []
    assert kinds_in(filled, FsckOrder(columns=("NOTES",))) == []
    assert kinds_in(filled, FsckOrder(columns=("BASE",))) == [Fault.BYTES] * 2


def test_i6_entries_that_are_wrong_are_found_by_a_deep_look(filled: Datastore) -> None:
    cell = cells_of(filled)[2]
    filled.mends.mend(filled.mends.find(CellKey(*cell.key)) or missing(), b'{"city":"elsewhere"}')
    with patch("schemaless_core.mends.Mends.rebuild", lambda *_its: None):
        filled.mends.mend(filled.mends.find(CellKey(*cell.key)) or missing(), b'{"city":"nowhere"}')
    assert kinds_in(filled) == []
    found = found_in(filled, DEEP)
    assert {each.kind for each in found} == {Fault.ENTRY}
    assert commands_of(found[0], "last", is_beside_postgres=False)[2] == "tripstore index repair of_city --version 1"

    filled.indexes.verify("of_city", repair=True)

    assert kinds_in(filled, DEEP) == []


def missing() -> Any:
    raise AssertionError("the cell is there")


def test_each_problem_has_an_invariant_and_commands() -> None:
    assert set(RULES) == set(Fault)
    assert all(rule.invariant.startswith("I") and rule.shows and rule.mends for rule in RULES.values())
    assert NOT_COMPARED not in set(Fault)
