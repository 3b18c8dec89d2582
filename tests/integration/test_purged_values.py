"""A row whose shard value only a purged version had leaves no entry when it is purged itself (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import FailpointReached
from schemaless_core.indexes.former_entries import FormerEntries
from tests.fscks import DEEP, kinds_in
from tests.indexing import catch_up, only_maintained
from tests.purges import INDEX, SECONDS, SHARDS, begun, bodies_of_lines, check_gone, filled, of_versions, purge, run
from tests.repairs import failing_at
from tests.stores import Stores


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    with stores.fresh(datastore_engine, shards=SHARDS, indexes=[INDEX]) as fresh:
        only_maintained(fresh)
        yield fresh


def entries_of(store: Datastore, row_key: UUID) -> list[tuple[object, bool]]:
    """Under which values an index has a row, and whether the entry is dead."""
    (version,) = store.indexes.catalogue.kept()
    found = []
    for cluster in store.clusters.values():
        here = list(cluster.primary.node.heads(None, Deadline(SECONDS)))
        seen = cluster.primary.node.find_entries_of(
            version.table, {shard: [row_key.bytes] for shard in here}, Deadline(SECONDS)
        )
        found += [(entry.values[0], entry.is_dead) for each in seen.values() for entry in each.entries]
    return sorted(found, key=str)


def of_former_value(store: Datastore) -> UUID:
    """A row whose first value only a superseded version had, which is purged."""
    row_key = filled(store)
    catch_up(store)
    run(store, of_versions(store, "BASE"))
    catch_up(store)
    assert bodies_of_lines(store) == []
    assert entries_of(store, row_key) == [("driver 1", True), ("driver 2", False)]
    return row_key


@pytest.mark.parametrize("point", ["none", "former.before_remove", "purge.before_erase", "purge.before_save"])
def test_i6_a_row_leaves_no_entry_under_a_value_that_a_purged_version_had(store: Datastore, point: str) -> None:
    row_key = of_former_value(store)
    job = begun(store, row_key, filled(store))
    if point != "none":
        with failing_at(point), pytest.raises(FailpointReached):
            store.purge_jobs.runner(job, "killed", settle_seconds=0.0).run()

    run(store, job)

    assert entries_of(store, row_key) == []
    check_gone(store, row_key)
    catch_up(store)
    assert kinds_in(store, DEEP) == []


def test_i6_entries_that_another_one_writes_all_the_time_are_named(store: Datastore) -> None:
    row_key = of_former_value(store)
    with patch.object(FormerEntries, "_remove_at", lambda *_all: None):
        job = begun(store, row_key)
        store.purge_jobs.runner(job, "test", settle_seconds=0.0).run()

    (found,) = store.purge_jobs.jobs.findings(job.id)
    assert (found.row_key, found.body) == (row_key, {"reason": "it has entries in index trips_of_driver"})
    run(store, begun(store, row_key))
    assert entries_of(store, row_key) == []


def test_control_by_the_lines_alone_an_entry_of_a_former_value_stays(store: Datastore) -> None:
    row_key = of_former_value(store)
    with patch.object(FormerEntries, "remove", lambda _self, _rows: {}):
        for _time in range(2):
            purge(store, row_key)
    assert entries_of(store, row_key) == [("driver 1", True)]
