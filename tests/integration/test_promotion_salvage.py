"""What else was on the disk of a dead primary alone: cells of others in its buffer, and entries of indexes (I5, I6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from schemaless_core import Datastore, PutStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EpochOpening
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.urls import parse_node_url
from tests.chaos.test_unresponsive_server import rows_on
from tests.indexing import catch_up, only_maintained
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine

INDEX = {"table": "of_city", "column_defs": [{"column_key": "BASE", "fields": [{"field": "city", "type": "string"}]}]}


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """Of which the replica has all there is up to now, and nothing of what comes."""
    options = {"buffer": {"put_seconds": 5.0}, "indexes": [INDEX], "shards": 8}
    with promotable(server_engine, tmp_path / "control", replicas=1, **options) as it:
        only_maintained(it.store)
        catch_up(it.store)
        it.cluster.wait_for_replicas()
        it.replica().query("STOP REPLICA IO_THREAD")
        yield it


def die_and_come_back(made: Promotable) -> None:
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    made.old.start()


def test_i5_cells_that_waited_in_the_buffer_of_a_dead_primary_come_to_their_shards(made: Promotable) -> None:
    """The control: before it they are nowhere."""
    rows = rows_on(made.store, "b", 3)
    clusters = made.document["clusters"] | {"b": {"primary": "mysql://root:x@127.0.0.1:1"}}  # nothing listens there
    with Datastore.open(made.document | {"clusters": clusters}) as cut_off:
        results = [cut_off.put_cell(row, "BASE", 1, {"city": "SF"}) for row in rows]
    assert {result.status for result in results} == {PutStatus.BUFFERED}
    die_and_come_back(made)
    made.store.replayer().round()
    assert [made.store.get_cell(row, "BASE", 1) for row in rows] == [None] * 3

    found = made.store.promotions.salvage("a", parse_node_url("old", made.old.url)).run(lambda done, total: None)

    assert (found.buffered, found.conflicts) == (3, 0)
    assert all(made.store.get_cell(row, "BASE", 1) is not None for row in rows)


def test_i6_entries_that_only_a_dead_primary_had_are_written_again(made: Promotable) -> None:
    """The offset of their cells is elsewhere, and has passed them. The control: before it a query lacks them."""
    rows = rows_on(made.store, "b", 20)
    for row in rows:
        made.store.put_cell(row, "BASE", 1, {"city": f"city {row}"})
    catch_up(made.store)
    assert all(is_found(made.store, row) for row in rows)
    die_and_come_back(made)
    catch_up(made.store)
    lost = [row for row in rows if not is_found(made.store, row)]
    assert 0 < len(lost) < len(rows), "those whose city is of a shard of the dead primary"

    made.store.promotions.salvage("a", parse_node_url("old", made.old.url)).run(lambda done, total: None)

    assert all(is_found(made.store, row) for row in rows)


@pytest.mark.parametrize("has_fork", [True, False], ids=["at the fork", "control: where it was"])
def test_i7_a_reader_of_the_lost_tail_skips_nothing_that_has_its_added_ids_since(
    made: Promotable, monkeypatch: pytest.MonkeyPatch, has_fork: bool
) -> None:
    """Five cells are read and lost; the new primary gives their added ids once more."""
    (row,) = rows_on(made.store, "a", 1)
    shard = made.store.shard_of(row)
    for ref_key in range(5):
        made.store.put_cell(row, "BASE", ref_key, "lost")
    position = made.store.get_cells_for_shard(shard, 0, 100).position
    die_and_come_back(made)
    for ref_key in range(5):
        made.store.put_cell(row, "BASE", ref_key, "new")
    if not has_fork:
        epochs = MySQLNode.epochs

        def without_fork(node: MySQLNode, of: int, deadline: Deadline) -> list[EpochOpening]:
            return [opening._replace(first_added_id=10**9) for opening in epochs(node, of, deadline)]

        monkeypatch.setattr(MySQLNode, "epochs", without_fork)

    rest = made.store.get_cells_for_shard(shard, position, 100).cells

    assert ([cell.body for cell in rest] == ["new"] * 5) is has_fork, rest


def test_i1_cells_that_are_larger_together_than_a_packet_are_salvaged(made: Promotable) -> None:
    """Nine of a megabyte each, which a page of the log brings at once; an index made since is none of the old disk."""
    body = "x" * 1_000_000
    (row,) = rows_on(made.store, "a", 1)
    for version in range(1, 10):
        made.store.using(deadline=10.0).put_cell(row, "NOTES", version, body)
    made.replica().query("SET GLOBAL max_allowed_packet = 8650752")  # as the doctor asks, and no more
    die_and_come_back(made)
    later = {
        "table": "of_kind",
        "column_defs": [{"column_key": "BASE", "fields": [{"field": "kind", "type": "string"}]}],
    }
    with Datastore.open(made.document | {"indexes": [INDEX, later]}) as store:
        store.create_schema()

        found = store.promotions.salvage("a", parse_node_url("old", made.old.url)).run(lambda done, total: None)

        assert (found.cells, found.salvaged, found.conflicts) == (9, 9, 0)
        assert store.get_cell(row, "NOTES", 9) is not None


def is_found(store: Datastore, row: UUID) -> bool:
    return [entry.row_key for entry in store.query_index("of_city", f"city {row}").entries] == [row]
