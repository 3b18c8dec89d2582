"""What a dead primary's disk has of purged rows stays there: cells and entries of indexes (I1, I2, I6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, CellPurged, Datastore
from schemaless_core.calls.purged import find_purged
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import FailpointReached
from schemaless_core.fsck.faults import Fault
from schemaless_core.promotion import salvaged_entries
from schemaless_core.promotion.salvage import Salvage, Salvaged
from schemaless_core.purging import carried
from schemaless_core.purging.purge_jobs import PurgeOrder
from schemaless_core.urls import parse_node_url
from tests.fscks import found_in, kinds_in, row_of
from tests.indexing import catch_up, only_maintained
from tests.promoted import Promotable, promotable
from tests.purges import INDEX, LATER, SHARDS, bodies_of_lines, check_gone, purge, run
from tests.repairs import failing_at
from tests.stores import ServerEngine

#: Shard values of one row, so many that shards of each cluster have some of its entries.
DRIVERS = 12


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """Of which the replica has all there is up to now, and nothing of what comes."""
    with promotable(server_engine, tmp_path / "control", replicas=1, shards=SHARDS, indexes=[INDEX]) as it:
        only_maintained(it.store)
        with patch.object(carried, "SETTLE_SECONDS", 0.0):
            yield it


def indexed(made: Promotable) -> UUID:
    """A row that is to be forgotten, and a neighbour, both in the replica as well."""
    forgotten, neighbour = (row_of(made.store, shard_of_a(made)) for _ in range(2))
    for n in range(1, DRIVERS + 1):
        made.store.put_cell(forgotten, "BASE", n, {"driver": f"driver {n}"})
        made.store.put_cell(neighbour, "BASE", n, {"driver": f"driver {n}"})
    catch_up(made.store)
    made.cluster.wait_for_replicas()
    made.replica().query("STOP REPLICA IO_THREAD")
    return forgotten


def shard_of_a(made: Promotable) -> int:
    return next(shard for shard, at in made.store.schema.plan().topology if at.cluster == "a")


def die_and_come_back(made: Promotable) -> None:
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    made.old.start()


def salvage(made: Promotable) -> Salvage:
    return made.store.promotions.salvage("a", parse_node_url("old", made.old.url))


def salvaged(made: Promotable, *, is_dry: bool = False) -> Salvaged:
    return salvage(made).run(lambda done, total: None, is_dry=is_dry)


def entries_of(store: Datastore, row_key: UUID) -> int:
    """How many there are, dead ones too, whatever shard value they stand under."""
    (version,) = store.indexes.catalogue.kept()
    count = 0
    for shard, at in store.schema.plan().topology:
        node = store.clusters[at.cluster].primary.node
        _state, found = node.scan_entries(version.table, shard, None, 10_000, Deadline(10.0))
        count += sum(each.row_key == row_key.bytes for each in found)
    return count


def test_i2_i6_salvage_writes_no_entry_of_a_row_that_was_purged_since(made: Promotable) -> None:
    row_key = indexed(made)
    assert entries_of(made.store, row_key) == DRIVERS
    die_and_come_back(made)
    purge(made.store, row_key)
    assert entries_of(made.store, row_key) == 0

    with patch.object(salvaged_entries, "find_purged", lambda router, shards, keys: {}):
        salvaged(made)
    assert entries_of(made.store, row_key) > 0, "control: no key is looked at"

    salvaged(made)

    assert entries_of(made.store, row_key) == 0, "what an earlier salvage brought back goes, too"
    check_gone(made.store, row_key)
    assert len(made.store.query_index("trips_of_driver", f"driver {DRIVERS}").entries) == 1, "the neighbour's"


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "goes on"])
def test_i2_i6_a_purge_between_a_look_and_the_write_of_entries_leaves_none(made: Promotable, is_killed: bool) -> None:
    row_key = indexed(made)
    die_and_come_back(made)
    looks = list[int]()

    def purged_after_the_look(*its: object) -> object:
        found = find_purged(*its)  # type: ignore[arg-type]  # as it was called
        if not looks:
            purge(made.store, row_key)
        looks.append(len(found))
        return found

    with patch.object(salvaged_entries, "find_purged", purged_after_the_look):
        if not is_killed:
            salvaged(made)
        else:
            with failing_at("salvage.entries_written"), pytest.raises(FailpointReached):
                salvaged(made)
            assert entries_of(made.store, row_key) > 0, "control: they were written after the purge"
            salvaged(made)

    assert entries_of(made.store, row_key) == 0
    check_gone(made.store, row_key)


def test_i1_cells_of_a_row_that_was_purged_since_are_no_lost_tail_and_nothing_to_salvage(made: Promotable) -> None:
    row_key = indexed(made)
    made.store.put_cell(row_key, "BASE", 99, {"driver": "on the old primary alone"})
    die_and_come_back(made)
    dry = salvaged(made, is_dry=True)
    assert (dry.cells, dry.there, dry.salvaged) == (1, 0, 1), "control: before the purge there is something"
    server = made.name(made.old)
    assert [each.cells for each in made.store.promotions.lost_tails("a", server)] == [1]

    purge(made.store, row_key)

    dry = salvaged(made, is_dry=True)
    assert (dry.cells, dry.there, dry.salvaged, dry.conflicts) == (1, 1, 0, 0)
    assert made.store.promotions.lost_tails("a", server) == []
    assert kinds_in(made.store) == []
    assert dry == salvaged(made)._replace(index_entries=0)


# What was purged on the old primary alone.


def purged_in_the_tail(made: Promotable) -> tuple[UUID, UUID]:
    """A row that was forgotten there, and one whose first version was purged, as its second one superseded it."""
    forgotten, kept = indexed(made), row_of(made.store, shard_of_a(made))
    made.replica().query("START REPLICA IO_THREAD")
    made.store.put_cell(kept, "BASE", 1, {"driver": "driver 1"})
    made.cluster.wait_for_replicas()
    made.replica().query("STOP REPLICA IO_THREAD")
    purge(made.store, forgotten)
    made.store.put_cell(kept, "BASE", 2, {"driver": "driver 2"})
    purges = made.store.purge_jobs
    run(made.store, purges.begin(purges.plan(superseded())))
    catch_up(made.store)
    die_and_come_back(made)
    return forgotten, kept


def superseded() -> PurgeOrder:
    return PurgeOrder((), ("BASE",), datetime.now(UTC) + LATER, versioned=("BASE",))


def check_purged(made: Promotable, forgotten: UUID, kept: UUID) -> None:
    check_gone(made.store, forgotten)
    assert entries_of(made.store, forgotten) == 0
    assert made.store.get_history(kept, "BASE") == [Cell(kept, "BASE", 2, {"driver": "driver 2"})]
    with pytest.raises(CellPurged):
        made.store.put_cell(kept, "BASE", 1, {"driver": "driver 1"})
    assert bodies_of_lines(made.store) == []
    assert kinds_in(made.store) == []


def test_i1_i2_a_purge_that_a_dead_primary_alone_had_is_done_again_by_salvage(made: Promotable) -> None:
    forgotten, kept = purged_in_the_tail(made)
    assert len(made.store.get_history(forgotten, "BASE")) == DRIVERS, "control: the new primary knows of no purge"
    (tail,) = [each.body for each in found_in(made.store) if each.kind == Fault.TAIL]
    assert (tail["cells"], tail["purged_keys"]) == (1, 3), "the rows', and that of the neighbour's column"
    assert salvaged(made, is_dry=True).purged_keys == 3
    with patch.object(carried.CarriedPurges, "carry", lambda its, forks: 0):
        salvaged(made)
    assert len(made.store.get_history(forgotten, "BASE")) == DRIVERS, "control: no key is carried"

    assert salvaged(made).purged_keys == 3

    check_purged(made, forgotten, kept)
    assert salvaged(made).purged_keys == 0, "all is done"


POINTS = (
    "purge.before_keep",
    "purge.kept",
    "purge.before_delete",
    "mends.before_purge",
    "mends.done",
    "carried.rows",
    "carried.columns",
    "purge.before_erase",
    "carried.finished",
)


@pytest.mark.parametrize("point", POINTS)
def test_i1_i2_a_salvage_that_died_while_it_purged_is_gone_on_with(made: Promotable, point: str) -> None:
    forgotten, kept = purged_in_the_tail(made)
    with failing_at(point), pytest.raises(FailpointReached):
        salvaged(made)

    salvaged(made)

    check_purged(made, forgotten, kept)
