"""The job of a repair: what it counts, and what the next one finishes after an accident."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from schemaless_core.control.jobs import JobState
from schemaless_core.failpoints import FailpointReached
from tests.damage import lose, spoil
from tests.facades import Migration
from tests.indexing import catch_up
from tests.repairs import STATUS_INDEX, base, failing_at, foreign, in_shadow, mended, refreshed, stored, trip
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.repairing.job import RepairRunner, begin
from tripstore.repairing.opening import Repairs
from validation.repair import Action

#: Of failpoints; CI takes the first.
ACCIDENTS = [
    "repair.mirror_read",
    "lift.committed",
    "mends.before_purge",
    "mends.before_rebuild",
    "mending.answered",
    "repair.settled",
    "jobs.saving",
    "repair.claimed",
    "repair.looked",
    "repair.before_lift",
    "lift.before_commit",
    "mends.before_mend",
    "mends.before_put",
    "mends.done",
    "mending.before_send",
    "repair.before_save",
    "repair.saved",
]


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    return refreshed(shared)


def test_a_job_counts_what_its_last_look_found(moving: Migration) -> None:
    """I11: equal, left to a person, and nothing twice."""
    keys = [trip(moving) for _ in range(7)]
    for key in keys[:3]:
        foreign(moving, key, 3)
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [base(key) for key in keys], authority=Backend.LEGACY, source="diff-x")
    runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job))

    assert runner.serve_part()
    assert not runner.serve_part()

    seen = repairs.jobs.progress(job.id)
    assert seen.job.state is JobState.DONE
    assert seen.counts == {"rows": 7, "equal": 7}
    assert runner.actions == {Action.LIFT: 3, Action.PUT: 3}
    assert repairs.jobs.findings(job.id) == []


@pytest.mark.parametrize("point", ACCIDENTS if SCALE >= 1 else ACCIDENTS[:8])
def test_an_accident_anywhere_leaves_what_the_next_one_finishes(moving: Migration, point: str) -> None:
    """I4, I6, I11: entries, cells and counts are what they are without the accident."""
    store = moving.facade.store
    torn, lost, ahead, extra = trip(moving, "t"), trip(moving, "l"), trip(moving, "a"), foreign(moving, uuid4(), 1)
    catch_up(store)
    spoil(store, stored(moving, torn), b'{"status":"foreign" }')
    lose(store, stored(moving, lost))
    foreign(moving, ahead, 4)
    targets = [base(torn), base(lost), base(ahead), base(extra.row_key)]
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, targets, authority=Backend.LEGACY, source="diff-x")

    with failing_at(point), pytest.raises(FailpointReached):
        RepairRunner(repairs.jobs, job.id, repairs.of_job(job)).serve_part()
    again = Repairs(moving.facade)
    RepairRunner(again.jobs, job.id, again.of_job(job)).serve_part()

    assert again.jobs.progress(job.id).counts == {"rows": 4, "equal": 4}
    assert again.jobs.state(job.id) is JobState.DONE
    moving.carry()
    catch_up(store)
    foreigners = {entry.row_key for entry in store.query_index("status_index", "foreign").entries}
    assert foreigners.isdisjoint(target.row_key for target in targets)
    assert store.indexes.verify("status_index", patience_seconds=5).is_clean
    for key in (torn, lost, ahead):
        assert moving.store.get_cell_latest(key, "BASE") == store.get_cell_latest(key, "BASE")
    assert store.get_row(extra.row_key) == {}
    actions = [action for action, _old, _new in mended(moving)]
    assert sorted(actions, key=str) == sorted(set(actions), key=str)  # nothing was done twice
    assert again.holes() == {}
    assert all(store.get_cells_for_shard(shard, 0, 1000) for shard in range(store.config.shards))
