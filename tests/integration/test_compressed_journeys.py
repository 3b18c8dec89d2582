"""Bodies in several forms on their way: backups, restores, moves, purges, fsck. What arrives are canonical bytes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.backups.records import decoded, encoded
from schemaless_core.config import CompressionConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.bodies import MARK_NUMBER
from schemaless_core.engine.dictionaries import PREFIX
from schemaless_core.engine.mysql.copies import logs
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.fsck.fsck import FsckOrder
from tests.backups import backed_up, empty, logs_of, restored
from tests.compressed import COMPRESSION, OTHER, SOME, compressed_of, stored_bodies, teach, turn_over
from tests.damage import execute
from tests.fscks import found_in, kinds_in, row_of
from tests.integration.test_moves import moved
from tests.stores import ServerEngine, Stores

SHARDS = 4


def soon() -> Deadline:
    return Deadline(20.0)


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS, compression=COMPRESSION)


def mixed(store: Datastore, versions: int = 2) -> list[Cell]:
    """Cells of all shards: plain, and by two dictionaries."""
    cells = list[Cell]()
    for dictionary in (None, SOME, OTHER):
        if dictionary is not None:
            teach(store, dictionary)
        rows = [row_of(store, shard) for shard in range(SHARDS)]
        made = [
            Cell(row, "BASE", n, {"driver": f"d {n}", "ü": "'\\\0"}) for row in rows for n in range(1, versions + 1)
        ]
        store.put_cells([*made, *(Cell(row, "NOTE", 1, None) for row in rows)])
        cells += made
    return cells


def node_of(store: Datastore, shard: int) -> MySQLNode:
    node = store.clusters[store._places.get(shard, soon()).cluster].primary.node
    assert isinstance(node, MySQLNode)
    return node


def test_sums_and_records_of_a_log_are_of_canonical_bytes_in_whatever_form_it_is(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "CELLS_PER_PAGE", 3)
    mixed(store)
    plain = Datastore(replace(store.config, compression=CompressionConfig()))

    def seen() -> list[object]:
        found = list[object]()
        for shard in range(SHARDS):
            copies = node_of(store, shard).copies
            records = copies.records(shard, 1, 9, soon())
            assert records.records is not None
            found += [copies.sum(shard, 1, 9, soon()), sorted(decoded(records.records))]
        return found

    before = seen()
    assert 0 < compressed_of(store)[0] < compressed_of(store)[1]
    turn_over(store)
    assert seen() == before
    turn_over(plain)
    assert compressed_of(store)[0] == 0
    assert seen() == before
    cells = node_of(store, 0).log({0: 0}, 100, soon())[0].cells
    assert before[1] == sorted(decoded(encoded(cells)))
    plain.close()


def test_control_a_sum_of_stored_bytes_tells_a_log_that_was_turned_over_from_itself(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(store)
    monkeypatch.setattr(logs, "SUM", logs.SUM.replace(f"ASCII(c.body) = {MARK_NUMBER}", "FALSE"))
    before = node_of(store, 0).copies.sum(0, 1, 9, soon())
    turn_over(store)
    assert node_of(store, 0).copies.sum(0, 1, 9, soon()) != before


def test_i3_a_backup_of_mixed_bodies_is_restored_where_there_is_no_dictionary(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    mixed(store)
    backed_up(store, tmp_path)
    turn_over(store)
    mixed(store)
    backed_up(store, tmp_path)

    with empty(stores, server_engine, shards=SHARDS) as target:
        restored(target, tmp_path)
        assert logs_of(target) == logs_of(store)
        assert compressed_of(target)[0] == 0
        assert [target.checksum(shard) for shard in range(SHARDS)] == [store.checksum(shard) for shard in range(SHARDS)]


def test_i3_a_shard_with_mixed_bodies_moves_there_and_back(store: Datastore) -> None:
    cells = mixed(store)
    before, sums = logs_of(store), store.checksum(0)
    home = store._places.get(0, soon()).cluster
    (other,) = store.clusters.keys() - {home}

    assert moved(store, 0, to=other)
    assert logs_of(store) == before
    assert store.checksum(0) == sums
    assert any(body[:1] == bytes([MARK_NUMBER]) for body in stored_bodies(store))
    store.put_cell(row_of(store, 0), "BASE", 1, {"driver": "meanwhile"})
    before = logs_of(store)
    assert moved(store, 0, to=home)
    assert logs_of(store) == before
    assert store.get_cells([cell.key for cell in cells]) == cells
    assert kinds_in(store, FsckOrder(is_deep=True)) == []


def test_i12_fsck_names_a_compressed_body_that_is_damaged(store: Datastore) -> None:
    mixed(store)
    assert kinds_in(store, FsckOrder(is_deep=True)) == []
    node = node_of(store, 0)
    spoil = f"UPDATE {node._names.cell(0)} SET body = CONCAT(LEFT(body, 9), 'damaged') WHERE ASCII(body) = 1 LIMIT 1"

    def run(connection: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]  # the driver's
            cursor.execute(spoil)

    node._sessions.run(run, soon())
    assert kinds_in(store, FsckOrder(is_deep=True)) == ["bytes"]


def test_rows_and_superseded_versions_with_mixed_bodies_are_purged(store: Datastore) -> None:
    cells = mixed(store)
    gone = {cells[0].row_key, cells[-1].row_key}
    for shard in range(SHARDS):
        last = store.purges.last_before(shard, datetime.now(UTC))
        after = 0
        while after < last:
            after = store.purges.superseded(shard, ["BASE"], after, last).reached
    store.purges.rows(gone)
    assert store.purges.finish_rows(gone) == []

    for cell in cells:
        found = store.get_cell(*cell.key)
        assert found == (cell if cell.ref_key == 2 and cell.row_key not in gone else None)


def test_i12_fsck_says_what_it_could_not_read_for_want_of_a_dictionary(store: Datastore) -> None:
    teach(store)
    store.put_cells([Cell(row_of(store, shard), "BASE", 1, {"driver": "d"}) for shard in range(SHARDS)])
    node = node_of(store, 0)
    execute(store, 0, f"DELETE FROM {node._names.document} WHERE name LIKE %s", f"{PREFIX}%")

    with Datastore(store.config) as reader:  # as another process, that never knew it
        found = found_in(reader, FsckOrder(is_deep=True))
        assert {each.kind for each in found} == {"not_compared"}
        assert SOME.id.hex() in str(found[0].body["reason"])
        assert reader.dictionaries.spread() == 1
        assert kinds_in(reader, FsckOrder(is_deep=True)) == []
